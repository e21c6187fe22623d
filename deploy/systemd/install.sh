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

[ -x "$prefix/bin/python" ] || python3 -m venv "$prefix"
if [ -f "$here/../../requirements.lock" ]; then
  "$prefix/bin/python" -m pip install --quiet --require-hashes -r "$here/../../requirements.lock"
fi
"$prefix/bin/python" -m pip install --quiet --force-reinstall --no-deps "$wheel"
"$prefix/bin/python" -m pip check >/dev/null || "$prefix/bin/python" -m pip install --quiet "$wheel"
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
