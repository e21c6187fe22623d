"""Starts the service as an add-on: turns the options into settings, asks the Supervisor for its broker, and drops root."""

import json
import os
import sys
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import quote

OPTIONS = Path(os.environ.get("ADDON_OPTIONS", "/data/options.json"))
SUPERVISOR = os.environ.get("ADDON_SUPERVISOR", "http://supervisor")
USER = 10001
TIMEOUT_S = 10


def main() -> None:
    options = json.loads(OPTIONS.read_text(encoding="utf-8"))
    settings = settings_of(options)
    data = Path(os.environ["LATCHBOARD_DATA_DIR"])
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    if os.getuid() == 0:
        drop_root(data)
    os.execvpe("latchboard", ["latchboard", "serve"], os.environ | settings)  # noqa: S606, S607 - the program of this image


def settings_of(options: dict) -> dict:
    settings = {each["name"]: each["value"] for each in options.get("settings", [])}
    if options.get("public_url"):
        settings["LATCHBOARD_PUBLIC_URL"] = options["public_url"]
    if options.get("homeassistant_key"):
        settings.setdefault("LATCHBOARD_HOMEASSISTANT", find_broker())
        settings["LATCHBOARD_HOMEASSISTANT_KEY"] = options["homeassistant_key"]
    return settings


def find_broker() -> str:
    """The URL of Home Assistant's broker. Ends the program with advice if there is none."""
    headers = {"Authorization": f"Bearer {os.environ.get('SUPERVISOR_TOKEN', '')}"}
    request = urllib.request.Request(f"{SUPERVISOR}/services/mqtt", headers=headers)  # noqa: S310 - the address is ours
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:  # noqa: S310
            found = json.load(response)["data"]
    except (OSError, ValueError, KeyError) as error:
        reason = error if not isinstance(error, urllib.error.HTTPError) else f"the Supervisor answered {error.code}"
        sys.exit(
            f"Home Assistant offers no broker ({reason}). Install the Mosquitto add-on, or empty the option homeassistant_key."
        )
    login = f"{quote(found['username'], safe='')}:{quote(found['password'], safe='')}@" if found.get("username") else ""
    return f"{'mqtts' if found.get('ssl') else 'mqtt'}://{login}{found['host']}:{found['port']}"


def drop_root(data: Path) -> None:
    """The service needs only its data."""
    for path in (data, *data.rglob("*")):
        os.chown(path, USER, USER, follow_symlinks=False)
    os.setgroups([])
    os.setgid(USER)
    os.setuid(USER)


if __name__ == "__main__":
    main()
