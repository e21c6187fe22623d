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
from adapters.crypto.access_tokens import JwtAccessTokenCodec
from adapters.crypto.key_ring import KeyProvider, KeyRing
from adapters.crypto.key_ring_file import KeyRingFile
from adapters.crypto.password_hasher import Argon2PasswordHasher
from adapters.crypto.secret_hasher import KeyRingSecretHasher
from adapters.crypto.vault import AesVault
from adapters.delivery.address_guard import AddressGuard
from adapters.delivery.retry_jitter import RandomJitter
from adapters.execution_waiter import InProcessExecutionWaiter
from adapters.feed_hub import InProcessFeedHub
from adapters.id_generator import RandomIdGenerator
from adapters.mail.log_mailer import LogMailer
from adapters.mail.smtp import SmtpMailer, SmtpServerConfig
from adapters.mqtt.firmware_codec import FirmwareDeviceCodec
from adapters.mqtt.null_link import NullDeviceLink
from adapters.mqtt.standby_link import StandbyDeviceLink
from adapters.params_validator import JsonSchemaParamsValidator
from adapters.recurrence import DateutilRecurrence
from adapters.storage.sql import SqlDatabase
from adapters.storage.sql.postgres.leader_fence import Fence
from app.config.settings import Settings, SettingsError
from app.runtime.errors import StartupError
from app.runtime.instance_lock import InstanceLock
from app.wiring.engines import EngineParts, load_engine
from domain.accounts.ports import Mailer
from domain.devices.firmware_config import BrokerEndpoint
from domain.devices.link import DeviceLink
from domain.kernel.clock import Clock
from domain.webhooks.ports import Courier

READER_POOL_SIZE = 6


class Adapters:
    def __init__(self, settings: Settings, *, on_interest: Callable[[], None]) -> None:
        """`on_interest` hears when somebody begins or ceases to look at the feed. Raises StartRefused and the engine's errors."""
        prepare_data_dir(settings.data_dir)
        self.clock = SystemClock()
        self.ids = RandomIdGenerator(self.clock.now_ms)
        self.key_ring = load_key_ring(settings)
        self.vault = AesVault(self.key_ring)
        self.digest = KeyRingSecretHasher(self.key_ring)
        self.tokens = JwtAccessTokenCodec(self.key_ring)
        self.hasher = Argon2PasswordHasher()
        self.mailer = create_mailer(settings)
        self.engine = load_engine(settings.engine)
        self.database = SqlDatabase(settings.effective_database_url, pool_size=READER_POOL_SIZE)
        self.instance_lock = InstanceLock(self.database.file)
        self.is_single_instance = self.database.file is not None
        """No other service writes to this database: the claim sees to it."""
        link = create_device_link(settings, self.clock, self.engine)
        self.standby_link = None if self.is_single_instance or not settings.has_broker else StandbyDeviceLink(link)
        """Where several instances may want the devices, the link is one that waits for them."""
        self.link: DeviceLink = self.standby_link or link
        self.fence = None if self.standby_link is None else Fence()
        self._has_broker = settings.has_broker
        self.courier = create_courier(settings, self.clock)
        self.jitter = RandomJitter()
        self.feed = InProcessFeedHub(on_interest=on_interest)
        self.codec = FirmwareDeviceCodec()
        self.params_checker = JsonSchemaParamsValidator()
        self.recurrence = DateutilRecurrence()
        self.execution_waiter = InProcessExecutionWaiter()

    @property
    def is_leader(self) -> bool:
        """Now: false beside another instance that does."""
        return self._has_broker and (self.standby_link is None or self.standby_link.is_active)


def prepare_data_dir(path: Path) -> None:
    """There, ours, and closed to others."""
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.chmod(0o700)
        if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
            raise PermissionError("it is not writable for this user")
    except OSError as error:
        raise StartupError(
            f"The data directory {path} cannot be used: {error.strerror or error}. "
            "Give the service's user write access to it, or set LATCHBOARD_DATA_DIR to another directory."
        ) from None


def create_courier(settings: Settings, clock: Clock) -> Courier:
    """The one in the extension, or with the readable engine the readable one."""
    guard = AddressGuard(
        allow_private=settings.webhook_allow_private,
        low_ports=frozenset(int(port) for port in settings.webhook_low_ports.split(",") if port.strip()),
    )
    path = settings.webhook_ca_file
    try:
        extra_ca = b"" if path is None else path.read_bytes()
        if settings.engine == "reference":
            from adapters.delivery.aiohttp_courier import AiohttpCourier

            return AiohttpCourier(clock=clock, guard=guard, extra_ca=extra_ca)
        native = import_module("adapters.delivery.native_courier")  # only where the extension is there
        made: Courier = native.NativeCourier(clock=clock, guard=guard, extra_ca=extra_ca)
        return made
    except (OSError, ValueError) as error:
        raise StartupError(
            f"The certificates in {path} cannot be used: {error}. Set LATCHBOARD_WEBHOOK_CA_FILE to a file of PEM certificates."
        ) from None


def load_key_ring(settings: Settings) -> KeyProvider:
    if settings.secret_keys is not None:
        try:
            return KeyRing.parse(settings.secret_keys.get_secret_value())
        except ValueError as error:
            raise SettingsError(f"LATCHBOARD_SECRET_KEYS: {error}") from None
    path = settings.data_dir / "secret_keys"
    try:
        return KeyRingFile(path)
    except (OSError, ValueError) as error:
        raise StartupError(
            f"The secret keys in {path} cannot be used: {error}. Restore the file from a backup; without it, stored device "
            "passwords and webhook secrets cannot be read."
        ) from None


def create_mailer(settings: Settings) -> Mailer:
    if settings.smtp_url is None:
        return LogMailer()
    try:
        address = SmtpServerConfig.parse(settings.smtp_url.get_secret_value())
    except ValueError as error:
        raise SettingsError(f"LATCHBOARD_SMTP_URL: {error}") from None
    return SmtpMailer(address, sender=settings.smtp_from)


def create_device_link(settings: Settings, clock: Clock, engine: EngineParts) -> DeviceLink:
    if not settings.has_broker:
        return NullDeviceLink()
    if settings.broker == "embedded":
        return _create_embedded_link(settings)
    return _create_external_link(settings, clock, engine)


def _create_external_link(settings: Settings, clock: Clock, engine: EngineParts) -> DeviceLink:
    from adapters.mqtt.mosquitto_credentials import MosquittoCredentialStore, MosquittoFiles
    from adapters.mqtt.mosquitto_link import MosquittoDeviceLink, MosquittoSettings

    url = urlsplit(settings.broker)
    user, password = unquote(url.username or "latchboard"), unquote(url.password or "")
    external = MosquittoSettings(url.hostname or "127.0.0.1", broker_port(url), user, password, tls=url.scheme == "mqtts")
    files = (settings.mosquitto_password_file, settings.mosquitto_acl_file, settings.mosquitto_pid_file)
    provisioner = None
    if files[0] is not None and files[1] is not None and files[2] is not None:
        provisioner = MosquittoCredentialStore(MosquittoFiles(files[0], files[1], files[2]), user, password)
    return MosquittoDeviceLink(external, clock, engine.make_batch, provisioner)


def broker_endpoint(settings: Settings) -> BrokerEndpoint:
    """Where devices reach the broker. An external one is where we reach it, but for what the settings say."""
    chosen = BrokerEndpoint(settings.mqtt_public_host, settings.mqtt_port, settings.mqtt_ws_port, settings.mqtt_tls_port)
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


def _create_embedded_link(settings: Settings) -> DeviceLink:
    try:
        embedded: Any = import_module("adapters.mqtt.embedded_link")
    except ImportError as error:
        raise StartupError(
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
