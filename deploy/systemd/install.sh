#!/usr/bin/env bash
# Installs a Latchboard wheel as a system service: sudo deploy/systemd/install.sh dist/latchboard-*.whl
# Again with a newer wheel: upgrades. It keeps /var/lib/latchboard (data) and /etc/latchboard.env (settings).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
prefix=${PREFIX:-/opt/latchboard} units=${UNIT_DIR:-/etc/systemd/system} settings=${SETTINGS_FILE:-/etc/latchboard.env}
wheel=${1:?usage: install.sh WHEEL (make wheel builds it)}
[ -f "$wheel" ] || { echo "$wheel does not exist; make wheel builds it" >&2; exit 2; }
[ -w "$(dirname "$units")" ] || { echo "run this as root: it writes $prefix, $units and $settings" >&2; exit 2; }
command -v python3 >/dev/null && python3 -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' || {
  echo "Python 3.11 or newer with its venv module is needed (Debian: apt install python3-venv)" >&2; exit 2; }

# The locks are beside this script, two folders above it (a checkout), or beside the wheel (a release). Without them nothing is installed:
# a package without a hash is whatever the network says it is.
locks=
for folder in "$here" "$here/../.." "$(dirname "$wheel")"; do
  [ -f "$folder/requirements.lock" ] && [ -f "$folder/requirements-build.lock" ] && { locks=$folder; break; }
done
[ -n "$locks" ] || { echo "requirements.lock and requirements-build.lock of this version are needed beside the wheel: they hold the hash of every package" >&2; exit 2; }
sums=$(dirname "$wheel")/SHA256SUMS
if [ -f "$sums" ]; then
  grep -q "  $(basename "$wheel")\$" "$sums" && (cd "$(dirname "$sums")" && sha256sum --quiet --check --ignore-missing SHA256SUMS) || {
    echo "$wheel is not the file that $sums names: nothing was installed" >&2; exit 2; }
fi

[ -x "$prefix/bin/python" ] || python3 -m venv "$prefix"
# Without isolation: else pip fetches what builds a package published as source, and asks for no hash of it.
"$prefix/bin/python" -m pip install --quiet --only-binary :all: --require-hashes -r "$locks/requirements-build.lock"
"$prefix/bin/python" -m pip install --quiet --no-build-isolation --require-hashes -r "$locks/requirements.lock"
"$prefix/bin/python" -m pip install --quiet --force-reinstall --no-index --no-deps "$wheel"
"$prefix/bin/python" -m pip check || { echo "requirements.lock is not that of $wheel: take both from one version" >&2; exit 2; }
"$prefix/bin/python" -m pip uninstall --quiet --yes maturin setuptools
mkdir -p "$units"
install -m 0644 "$here/latchboard.service" "$units/latchboard.service"
if [ ! -e "$settings" ]; then
  install -m 0600 /dev/null "$settings"
  cat > "$settings" <<'SETTINGS'
# Settings of Latchboard, one a line; `latchboard config` shows all of them.
LATCHBOARD_HTTP_HOST=127.0.0.1
LATCHBOARD_MQTT_HOST=0.0.0.0
# The address of this machine as devices know it:
#LATCHBOARD_MQTT_PUBLIC_HOST=192.168.1.10
SETTINGS
fi
if [ -d /run/systemd/system ] && [ "$units" = /etc/systemd/system ]; then
  systemctl daemon-reload
  systemctl enable --now latchboard
  systemctl restart latchboard
  echo "Latchboard runs; the one-time link that makes the first login is in /var/lib/latchboard/first-run-link.txt, its log in: journalctl -u latchboard"
else
  echo "Installed in $prefix; no systemd runs here, so nothing was started"
fi
