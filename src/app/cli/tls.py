"""`latchboard tls`: a small certificate authority, so that MQTT over TLS needs no other program."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from adapters.clock import SystemClock
from adapters.crypto.certificates import CertificateAuthority, PemCertificateAndKey, ServerKey, load_rsa_key, make_rsa_key
from app.cli.support import EXIT_FAILURE, exit_with, load_settings_or_exit, stdout_console
from domain.kernel.clock import SECOND_MS
from domain.kernel.ids import IdPrefix, has_id_format

DIRECTORY = "tls"
SERVER_DAYS = 825
DEVICE_DAYS = 3_650
_SERVER_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.:-]{0,251}[A-Za-z0-9])?")

tls = typer.Typer(help="Certificates for MQTT over TLS: an authority, its server, its devices.", no_args_is_help=True)

Days = Annotated[int, typer.Option(min=1, max=36_500, help="How long the certificate is valid.")]


@tls.command("init")
def tls_init(
    names: Annotated[
        list[str] | None,
        typer.Option("--name", help="Host name or address by which devices reach the server; repeat it for several."),
    ] = None,
    days: Days = SERVER_DAYS,
    rsa: Annotated[
        bool, typer.Option("--rsa", help="Give the server an RSA key, which Tasmota needs. Its renewals keep the key.")
    ] = False,
) -> None:
    """Make an authority, if there is none, and a certificate for the server. Repeat it to renew the server's certificate."""
    settings = load_settings_or_exit()
    folder = settings.data_dir / DIRECTORY
    names = list(dict.fromkeys(names or [settings.effective_mqtt_public_host]))
    wrong = [name for name in names if not _SERVER_NAME.fullmatch(name)]
    if wrong:
        exit_with(f"{wrong[0]!r} is neither a host name nor an address. Give one such as --name mqtt.example.com.", EXIT_FAILURE)
    now = _now()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not (folder / "ca.pem").exists():
        _write(folder, "ca", CertificateAuthority.create(f"Latchboard on {names[0]}", now).to_pem())
        stdout_console().print(f"Authority: {folder / 'ca.pem'}. Copy it to the devices; keep ca-key.pem secret.")
    _write(folder, "server", _load_authority(folder).issue_server(names, now, days, _server_key(folder, wants_rsa=rsa)))
    stdout_console().print(f"Server certificate for {', '.join(names)}, valid for {days} days. Settings:")
    stdout_console().print(f"LATCHBOARD_MQTT_TLS_PORT={settings.mqtt_tls_port or 8883}", soft_wrap=True)
    stdout_console().print(f"LATCHBOARD_MQTT_TLS_CERTIFICATE={(folder / 'server.pem').absolute()}", soft_wrap=True)
    stdout_console().print(f"LATCHBOARD_MQTT_TLS_KEY={(folder / 'server-key.pem').absolute()}", soft_wrap=True)
    stdout_console().print("To let devices in by certificate only, also:")
    stdout_console().print(f"LATCHBOARD_MQTT_CLIENT_CA={(folder / 'ca.pem').absolute()}", soft_wrap=True)
    stdout_console().print("Restart the service: it reads certificates at its start.")


@tls.command("device")
def tls_device(device_id: Annotated[str, typer.Argument(help="As in GET /api/v1/devices.")], days: Days = DEVICE_DAYS) -> None:
    """Make a certificate by which a device identifies itself instead of by its password."""
    folder = load_settings_or_exit().data_dir / DIRECTORY
    if not has_id_format(IdPrefix.DEVICE, device_id):
        exit_with(f"{device_id!r} is not a device id. Give one such as dev_s247fcqf8bwd2y4ut8m7.", EXIT_FAILURE)
    authority = _load_authority(folder)
    devices = folder / "devices"
    devices.mkdir(exist_ok=True, mode=0o700)
    _write(devices, device_id, authority.issue_device(device_id, _now(), days))
    stdout_console().print(f"Certificate: {devices / f'{device_id}.pem'}, valid for {days} days")
    stdout_console().print(f"Key: {devices / f'{device_id}-key.pem'}. Move it to the device and delete it here.")


def _server_key(folder: Path, *, wants_rsa: bool) -> ServerKey | None:
    """An RSA key is kept, because Tasmotas know its fingerprint; None: a new key of the usual kind."""
    try:
        kept = load_rsa_key((folder / "server-key.pem").read_bytes())
    except (OSError, ValueError):
        kept = None
    return make_rsa_key() if kept is None and wants_rsa else kept


def _now() -> datetime:
    return datetime.fromtimestamp(SystemClock().now_ms() / SECOND_MS, UTC)


def _load_authority(folder: Path) -> CertificateAuthority:
    try:
        pair = PemCertificateAndKey((folder / "ca.pem").read_bytes(), (folder / "ca-key.pem").read_bytes())
        return CertificateAuthority.load(pair)
    except FileNotFoundError as error:
        exit_with(f"{error.filename} is missing. Make an authority with: latchboard tls init", EXIT_FAILURE)
    except (OSError, ValueError) as error:
        exit_with(f"The authority in {folder} cannot be used: {error}. Restore ca.pem and ca-key.pem.", EXIT_FAILURE)


def _write(folder: Path, name: str, pair: PemCertificateAndKey) -> None:
    """The key first, and each file as a whole: an interruption leaves no certificate without its key."""
    for file, content in ((f"{name}-key.pem", pair.key), (f"{name}.pem", pair.certificate)):
        partial = folder / f".{file}"
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        partial.replace(folder / file)
