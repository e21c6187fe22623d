"""The choices that settings make about the outside: which database, broker, engine, mail and keys.

Everything here is constructed and nothing is opened; `lifecycle.py` opens it in order. What cannot be had is refused with a
`StartRefused` that says what to set. What most installations do without is imported where it is chosen: it would cost every start
a tenth of a second and more.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from adapters.clock import SystemClock
from adapters.crypto.digest import RingDigest
from adapters.crypto.keyfile import KeyFile
from adapters.crypto.keyring import KeyRing, Ring
from adapters.crypto.passwords import Argon2Hasher
from adapters.crypto.tokens import JwtAccessTokens
from adapters.crypto.vault import AesVault
from adapters.delivery.guard import AddressGuard
from adapters.delivery.jitter import RandomJitter
from adapters.feed import InProcessFeed
from adapters.ids import SystemIds
from adapters.mail.log import LogMailer
from adapters.mail.smtp import SmtpAddress, SmtpMailer
from adapters.mqtt.absent import AbsentLink
from adapters.mqtt.codec import ProfileCodec
from adapters.mqtt.standby import StandbyLink
from adapters.outcomes import InProcessOutcomes
from adapters.params import JsonSchemaChecker
from adapters.recurrence import DateutilRecurrence
from adapters.storage.sql import SqlDatabase
from adapters.storage.sql.fence import Fence
from app.claim import Claim
from app.engines import EngineParts, load_engine
from app.refused import StartRefused
from app.settings import Settings, SettingsError
from domain.accounts.ports import Mailer
from domain.devices.configblock import Endpoint
from domain.devices.link import DeviceLink
from domain.kernel.clock import Clock
from domain.webhooks.ports import Courier

READERS = 6


class Outside:
    def __init__(self, settings: Settings, *, on_interest: Callable[[], None]) -> None:
        """`on_interest` hears when somebody begins or ceases to look at the feed. Raises StartRefused and the engine's errors."""
        prepare_data_dir(settings.data_dir)
        self.clock = SystemClock()
        self.ids = SystemIds(self.clock.now_ms)
        self.ring = key_ring(settings)
        self.vault = AesVault(self.ring)
        self.digest = RingDigest(self.ring)
        self.tokens = JwtAccessTokens(self.ring)
        self.hasher = Argon2Hasher()
        self.mailer = mailer(settings)
        self.engine = load_engine(settings.engine)
        self.database = SqlDatabase(settings.database, pool_size=READERS)
        self.claim = Claim(self.database.file)
        self.exclusive = self.database.file is not None
        """No other service writes to this database: the claim sees to it."""
        link = device_link(settings, self.clock, self.engine)
        self.standby = None if self.exclusive or not settings.holds_devices else StandbyLink(link)
        """Where several instances may want the devices, the link is one that waits for them."""
        self.link: DeviceLink = self.standby or link
        self.fence = None if self.standby is None else Fence()
        self._wants_devices = settings.holds_devices
        self.courier = courier(settings, self.clock)
        self.jitter = RandomJitter()
        self.feed = InProcessFeed(on_interest=on_interest)
        self.codec = ProfileCodec()
        self.checker = JsonSchemaChecker()
        self.recurrence = DateutilRecurrence()
        self.outcomes = InProcessOutcomes()

    @property
    def holds_devices(self) -> bool:
        """Now: false beside another instance that does."""
        return self._wants_devices and (self.standby is None or self.standby.here)


def prepare_data_dir(path: Path) -> None:
    """There, ours, and closed to others."""
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.chmod(0o700)
        if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
            raise PermissionError("it is not writable for this user")
    except OSError as error:
        raise StartRefused(
            f"The data directory {path} cannot be used: {error.strerror or error}. "
            "Give the service's user write access to it, or set LATCHBOARD_DATA_DIR to another directory."
        ) from None


def courier(settings: Settings, clock: Clock) -> Courier:
    """The one in the extension, or with the readable engine the readable one."""
    guard = AddressGuard(
        allow_private=settings.webhook_allow_private,
        low_ports=frozenset(int(port) for port in settings.webhook_low_ports.split(",") if port.strip()),
    )
    path = settings.webhook_ca_file
    try:
        extra_ca = b"" if path is None else path.read_bytes()
        if settings.engine == "reference":
            from adapters.delivery.plain import PlainCourier

            return PlainCourier(clock=clock, guard=guard, extra_ca=extra_ca)
        native = import_module("adapters.delivery.native")  # only where the extension is there
        made: Courier = native.NativeCourier(clock=clock, guard=guard, extra_ca=extra_ca)
        return made
    except (OSError, ValueError) as error:
        raise StartRefused(
            f"The certificates in {path} cannot be used: {error}. Set LATCHBOARD_WEBHOOK_CA_FILE to a file of PEM certificates."
        ) from None


def key_ring(settings: Settings) -> Ring:
    if settings.secret_keys is not None:
        try:
            return KeyRing.parse(settings.secret_keys.get_secret_value())
        except ValueError as error:
            raise SettingsError(f"LATCHBOARD_SECRET_KEYS: {error}") from None
    path = settings.data_dir / "secret_keys"
    try:
        return KeyFile(path)
    except (OSError, ValueError) as error:
        raise StartRefused(
            f"The secret keys in {path} cannot be used: {error}. Restore the file from a backup; without it, stored device "
            "passwords and webhook secrets cannot be read."
        ) from None


def mailer(settings: Settings) -> Mailer:
    if settings.smtp_url is None:
        return LogMailer()
    try:
        address = SmtpAddress.parse(settings.smtp_url.get_secret_value())
    except ValueError as error:
        raise SettingsError(f"LATCHBOARD_SMTP_URL: {error}") from None
    return SmtpMailer(address, sender=settings.smtp_from)


def device_link(settings: Settings, clock: Clock, engine: EngineParts) -> DeviceLink:
    if not settings.holds_devices:
        return AbsentLink()
    if settings.broker == "embedded":
        return _embedded(settings)
    return _external(settings, clock, engine)


def _external(settings: Settings, clock: Clock, engine: EngineParts) -> DeviceLink:
    from adapters.mqtt.external import ExternalSettings, MosquittoLink
    from adapters.mqtt.mosquitto import MosquittoFiles, Provisioner

    url = urlsplit(settings.broker)
    user, password = unquote(url.username or "latchboard"), unquote(url.password or "")
    external = ExternalSettings(url.hostname or "127.0.0.1", broker_port(url), user, password, tls=url.scheme == "mqtts")
    files = (settings.mosquitto_password_file, settings.mosquitto_acl_file, settings.mosquitto_pid_file)
    provisioner = None
    if files[0] is not None and files[1] is not None and files[2] is not None:
        provisioner = Provisioner(MosquittoFiles(files[0], files[1], files[2]), user, password)
    return MosquittoLink(external, clock, engine.batch, provisioner)


def reached_at(settings: Settings) -> Endpoint:
    """Where devices reach the broker. An external one is where we reach it, but for what the settings say."""
    chosen = Endpoint(settings.mqtt_public_host, settings.mqtt_port, settings.mqtt_ws_port, settings.mqtt_tls_port)
    if settings.broker in ("embedded", "none"):
        return chosen
    url, said = urlsplit(settings.broker), settings.model_fields_set
    if "mqtt_public_host" not in said:
        chosen = replace(chosen, host=url.hostname or chosen.host)
    if url.scheme == "mqtts":
        return chosen if "mqtt_tls_port" in said else replace(chosen, tls_port=broker_port(url))
    return chosen if "mqtt_port" in said else replace(chosen, port=broker_port(url))


def broker_port(url: SplitResult) -> int:
    return url.port or (8883 if url.scheme == "mqtts" else 1883)


def _embedded(settings: Settings) -> DeviceLink:
    try:
        embedded: Any = import_module("adapters.mqtt.embedded")
    except ImportError as error:
        raise StartRefused(
            f"The embedded broker cannot be used: {error}. Build it with `make setup`, "
            "or set LATCHBOARD_BROKER to the URL of an external one."
        ) from None
    listeners = [
        embedded.Listener("tcp", settings.mqtt_host, settings.mqtt_port),
        embedded.Listener("ws", settings.mqtt_host, settings.mqtt_ws_port),
    ]
    if settings.mqtt_tls_port is not None:
        listeners.append(embedded.Listener("tcp", settings.mqtt_host, settings.mqtt_tls_port, tls=True))
    limits = embedded.BrokerLimits(rate_per_second=settings.ingest_limit, rate_burst=max(1.0, 2 * settings.ingest_limit))
    link: DeviceLink = embedded.EmbeddedLink(
        embedded.BrokerSettings(tuple(listeners), settings.mqtt_tls_certificate, settings.mqtt_tls_key, limits)
    )
    return link


def with_free_ports(settings: Settings) -> Settings:
    """Port 0 means any free one; it is chosen here, because credentials name it before the broker listens."""
    chosen: dict[str, int] = {}
    held: list[socket.socket] = []
    for name in ("http_port", "mqtt_port", "mqtt_ws_port", "mqtt_tls_port"):
        if getattr(settings, name) == 0:
            probe = socket.socket()
            probe.bind(("127.0.0.1", 0))
            held.append(probe)
            chosen[name] = probe.getsockname()[1]
    for probe in held:
        probe.close()
    return settings.model_copy(update=chosen)
