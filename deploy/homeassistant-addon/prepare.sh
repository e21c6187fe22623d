#!/bin/sh
# Copies the add-on with everything that its image needs: prepare.sh WHEEL FOLDER, with FOLDER in Home Assistant's /addons
set -eu
here=$(cd "$(dirname "$0")" && pwd)
wheel=${1:?usage: prepare.sh WHEEL FOLDER (make wheel builds the wheel)}
folder=${2:?usage: prepare.sh WHEEL FOLDER}
[ -f "$wheel" ] || { echo "$wheel does not exist; make wheel builds it" >&2; exit 2; }
mkdir -p "$folder/translations"
rm -f "$folder"/latchboard-*.whl
cp "$here/config.yaml" "$here/Dockerfile" "$here/run.py" "$here/DOCS.md" "$folder/"
cp "$here"/translations/*.yaml "$folder/translations/"
cp "$here/../../requirements.lock" "$here/../../requirements-build.lock" "$wheel" "$folder/"
