"""Constructs the adapters that the settings select: database, broker, engine, mail, keys.

Nothing is opened here; `lifecycle.py` opens the adapters in order. A StartupError names the setting to change. Adapters that few
installations use are imported where they are selected: each such import adds a tenth of a second or more to the start. There is
no silent fallback from one engine to the other.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict
from urllib.parse import SplitResult, unquote, urlsplit

from adapters.clock import JudgedClock
from adapters.crypto.key_ring import KeyRing, KeyRingFile, MasterKeyRing
from adapters.crypto.passwords import Argon2PasswordHasher, PyotpTotpCodec
from adapters.crypto.tokens import JwtAccessTokenCodec, KeyRingTokenHasher
from adapters.crypto.vault import AesVault
from adapters.crypto.webauthn import WebAuthnCeremonies
from adapters.delivery.address_guard import AddressGuard
from adapters.engine.extension_check import EngineMissingError
from adapters.feed_hub import InProcessFeedHub
from adapters.mail.background import InProcessBackgroundMailer, LogMailer
from adapters.mqtt.codec import ProfileDispatchingDeviceCodec
from adapters.mqtt.links import LeaderOnlyDeviceLink, NullDeviceLink
from adapters.params_validator import JsonSchemaParamsValidator
from adapters.randomness import RandomIdAndSecretGenerator
from adapters.recurrence import DateutilRecurrence
from adapters.storage.disk_space import DiskSpaceMonitor
from adapters.storage.sql import SqlDatabase
from adapters.storage.sql.postgres.leader_fence import PostgresLeaderFence
from adapters.storage.sql.unit_of_work import SqlUnitOfWork
from adapters.translator import MessageCatalogTranslator
from adapters.waiters import InProcessApprovalWaiter, InProcessExecutionWaiter
from app.config.settings import Settings, SettingsError
from app.runtime import start
from app.runtime.processes import WorkerProcessContext
from app.runtime.start import KEY_FILE, InstanceLock, StartupError, begin_first_start
from domain.accounts.ports import Mailer
from domain.devices.firmware import BrokerEndpoint
from domain.devices.link import DeviceBrokerLink
from domain.events.hash_chain import ChainHasher
from domain.feed.interest import FeedMessageBus
from domain.grants.model import GrantEvaluator
from domain.kernel.clock import Clock
from domain.kernel.idempotency import PROCESS_ID_LENGTH
from domain.kernel.ids import IdAndSecretGenerator
from domain.kernel.life import DatabaseLife
from domain.rules.ports import RawTelemetryBatch, TelemetryEngine
from domain.sign_in.ports import TokenHasher
from domain.webhooks.ports import Courier, CreateSigner

if TYPE_CHECKING:
    from adapters.mqtt.embedded import BrokerLimits
    from adapters.stream.unix_bus import UnixSocketFeedBus
    from app.wiring.cluster import ClusterComponents

SOURCE_ROOT = Path(__file__).resolve().parents[3]
"""The checkout that holds the Rust sources; an installed wheel has none, and the freshness check is skipped."""
READER_POOL_SIZE = 6


class SharedPorts(TypedDict):
    """What almost every service of the domain is given; unpacked into its constructor."""

    uow: SqlUnitOfWork
    clock: Clock


class EntityCreationPorts(SharedPorts):
    """For services that create something with an id."""

    ids: IdAndSecretGenerator


class SecretIssuerPorts(EntityCreationPorts):
    """For services that hand out a secret of which only the digest is stored."""

    digest: TokenHasher


class ServiceAdapters:
    def __init__(
        self, settings: Settings, *, on_interest: Callable[[], None], worker: WorkerProcessContext | None = None
    ) -> None:
        """`on_interest` is called when the feed gets a client, and when access changes. `worker`: set in a worker process. Raises
        SettingsError, StartupError, and the engine's errors."""
        prepare_data_dir(settings.data_dir)
        self.clock = JudgedClock(settings.clock_hold_s)
        self.ids = RandomIdAndSecretGenerator(self.clock.now_ms)
        self.process_id = secrets.token_bytes(PROCESS_ID_LENGTH)
        """Names this run of this instance."""
        self.key_ring = load_key_ring(settings)
        self.vault = AesVault(ring=self.key_ring)
        self.digest = KeyRingTokenHasher(self.key_ring)
        self.totp = PyotpTotpCodec()
        self.passkeys = WebAuthnCeremonies(origin=settings.effective_public_url)
        self.tokens = JwtAccessTokenCodec(self.key_ring)
        self.hasher = Argon2PasswordHasher()
        self.login_hasher = Argon2PasswordHasher()
        """Threads and a queue of their own: strangers who sign in by the hundred do not delay a signed-in person's request."""
        self.mailer = create_mailer(settings)
        self.mail_queue = InProcessBackgroundMailer(mailer=self.mailer)
        self.cluster = _create_cluster(settings, self.process_id, self.clock)
        self.worker_bus = _create_worker_bus(settings, worker, self.feed_name)
        self.engine = load_engine(settings.engine)
        if self.cluster is not None:
            self.engine = own_devices_only(self.engine, self.cluster.holds)
        self.life = DatabaseLife()
        self.database = SqlDatabase(
            settings.effective_database_url, pool_size=READER_POOL_SIZE, instance=self.front, life=self.life, clock=self.clock
        )
        self.disk = create_disk_space(settings, self.database.file)
        self.instance_lock = InstanceLock(self.database.file)
        self.is_single_instance = self.database.file is not None
        """No other service writes to this database; the instance lock prevents it."""
        link = create_device_link(settings, self.clock, self.engine, self.front or "")
        is_only_holder = self.is_single_instance or self.cluster is not None or not settings.has_broker
        self.standby_link = None if is_only_holder else LeaderOnlyDeviceLink(link)
        """Set when several instances may compete for the devices: this link does nothing until the instance is leader."""
        self.link: DeviceBrokerLink = self.standby_link or link
        self.tell_broker_time = _broker_time(settings)
        self.fence = None if self.standby_link is None else PostgresLeaderFence()
        self._has_broker = settings.has_broker
        self.courier = create_courier(settings, self.clock)
        self.feed = InProcessFeedHub(on_filters_changed=on_interest)
        self.codec = ProfileDispatchingDeviceCodec()
        self.params_checker, self.recurrence = JsonSchemaParamsValidator(), DateutilRecurrence()
        self.translator = MessageCatalogTranslator()
        self.execution_waiter, self.approval_waiter = InProcessExecutionWaiter(), InProcessApprovalWaiter()

    def shared_ports(self, uow: SqlUnitOfWork) -> SharedPorts:
        return {"uow": uow, "clock": self.clock}

    def creating_ports(self, uow: SqlUnitOfWork) -> EntityCreationPorts:
        return {**self.shared_ports(uow), "ids": self.ids}

    def secret_ports(self, uow: SqlUnitOfWork) -> SecretIssuerPorts:
        return {**self.creating_ports(uow), "digest": self.digest}

    @property
    def feed_name(self) -> str:
        """Names this process at `feed_bus`."""
        return self.front or self.process_id.hex()

    @property
    def feed_bus(self) -> FeedMessageBus | None:
        """Brings readings to the feeds of other processes."""
        return self.worker_bus if self.cluster is None else self.cluster.bus

    @property
    def front(self) -> str | None:
        """The name of this instance of a cluster."""
        return None if self.cluster is None else self.cluster.instance

    def is_stored_elsewhere(self, device_no: int) -> bool:
        """Whether another instance stores the device's telemetry, so that this one's engine may be behind."""
        return not self.is_leader if self.cluster is None else not self.cluster.holds(device_no)

    @property
    def is_leader(self) -> bool:
        """Whether this instance holds the devices at present."""
        return self._has_broker and (self.standby_link is None or self.standby_link.is_active)


def _create_cluster(settings: Settings, process_id: bytes, clock: Clock) -> ClusterComponents | None:
    if settings.cluster is None:
        return None
    from app.wiring.cluster import create_cluster

    return create_cluster(settings, process_id, clock)


def _create_worker_bus(settings: Settings, worker: WorkerProcessContext | None, name: str) -> UnixSocketFeedBus | None:
    if worker is None:
        return None
    from adapters.stream.unix_bus import UnixSocketFeedBus

    return UnixSocketFeedBus(worker.folder, worker.number, settings.workers, name)


def prepare_data_dir(path: Path) -> None:
    """Create the directory with mode 0700. Raises StartupError."""
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.chmod(0o700)
        if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
            raise PermissionError("it is not writable by this user")
    except OSError as error:
        raise StartupError(
            f"The data directory {path} cannot be used: {error.strerror or error}. "
            "Give the service's user write access to it, or set LATCHBOARD_DATA_DIR to another directory."
        ) from None


def create_disk_space(settings: Settings, database: Path | None) -> DiskSpaceMonitor:
    folder = settings.data_dir if database is None else database.parent
    return DiskSpaceMonitor(folder=folder, percent=settings.disk_warning_percent, mib=settings.disk_warning_mib)


def create_courier(settings: Settings, clock: Clock) -> Courier:
    """Raises StartupError, and EngineMissingError also with the reference engine: only the extension sends webhooks."""
    try:
        from adapters.delivery.courier import NativeCourier
    except ImportError as missing:
        raise EngineMissingError from missing
    guard = AddressGuard(
        allow_private=settings.webhook_allow_private,
        low_ports=settings.allowed_low_ports,
        networks=settings.allowed_webhook_networks,
        advice="For a receiver in a network of your own, the operator adds that network to LATCHBOARD_WEBHOOK_NETWORKS.",
    )
    path = settings.webhook_ca_file
    try:
        extra_ca = b"" if path is None else path.read_bytes()
        return NativeCourier(clock=clock, guard=guard, extra_ca=extra_ca)
    except (OSError, ValueError) as error:
        raise StartupError(
            f"The certificates in {path} cannot be used: {error}. Set LATCHBOARD_WEBHOOK_CA_FILE to a file of PEM certificates."
        ) from None


def load_key_ring(settings: Settings) -> MasterKeyRing:
    if settings.secret_keys is not None:
        try:
            return KeyRing.parse(settings.secret_keys.get_secret_value())
        except ValueError as error:
            raise SettingsError(f"LATCHBOARD_SECRET_KEYS: {error}") from None
    path = settings.data_dir / KEY_FILE
    try:
        if not path.exists():
            begin_first_start(settings.data_dir)
        return KeyRingFile(path)
    except (OSError, ValueError) as error:
        raise StartupError(
            f"The secret keys in {path} cannot be used: {error}. Restore the file from a backup; without it, stored device "
            "passwords and webhook secrets cannot be read."
        ) from None


def create_mailer(settings: Settings) -> Mailer:
    if settings.smtp_url is None:
        return LogMailer()
    from adapters.mail.smtp import SmtpMailer, SmtpServerConfig

    try:
        server = SmtpServerConfig.parse(settings.smtp_url.get_secret_value())
    except ValueError as error:
        raise SettingsError(f"LATCHBOARD_SMTP_URL: {error}") from None
    return SmtpMailer(server, sender=settings.smtp_from)


def with_free_ports(settings: Settings) -> Settings:
    """Replace each port 0 by a free port. This happens before the broker listens, because credentials name the port."""
    ports: dict[str, int] = {}
    probes: list[socket.socket] = []
    for name in ("http_port", "mqtt_port", "mqtt_ws_port", "mqtt_tls_port"):
        if getattr(settings, name) == 0:
            probe = socket.socket()
            probe.bind(("127.0.0.1", 0))
            probes.append(probe)
            ports[name] = probe.getsockname()[1]
    for probe in probes:
        probe.close()
    return settings.model_copy(update=ports)


def _no_blocks(blocks: Sequence[bytes]) -> RawTelemetryBatch:
    raise ValueError("blocks are read by instances of a cluster only")


@dataclass(frozen=True, slots=True)
class NativeOrReferenceComponents:
    """The engine of the fleet, a factory of engines for rule dry runs, and grant evaluator, signer and hasher of the same
    kind."""

    name: str
    engine: TelemetryEngine
    create_engine: Callable[[], TelemetryEngine]
    make_batch: Callable[[Sequence[tuple[int, int, bytes]]], RawTelemetryBatch]
    grant_evaluator: GrantEvaluator
    create_signer: CreateSigner
    chain_hasher: ChainHasher
    read_blocks: Callable[[Sequence[bytes]], RawTelemetryBatch] = _no_blocks
    """Reads the entries of a cluster's log. Raises ValueError."""


def load_engine(name: str) -> NativeOrReferenceComponents:
    """Raises Unavailable."""
    return _load_native() if name == "native" else _load_reference()


def _load_native() -> NativeOrReferenceComponents:
    from adapters.engine import extension_check

    extension_check.check_extension(SOURCE_ROOT)
    from adapters.engine.native import NativeEngine, NativeGrantEvaluator, chain_events, create_native_signer, make_batch

    return NativeOrReferenceComponents(
        "native", NativeEngine(), NativeEngine, make_batch, NativeGrantEvaluator(), create_native_signer, chain_events
    )


def _load_reference() -> NativeOrReferenceComponents:
    from adapters.engine.reference import ReferenceGrantEvaluator, ReferenceWebhookSigner
    from domain.events.hash_chain import chain_events
    from domain.telemetry.reference_engine import PythonTelemetryBatch, ReferenceTelemetryEngine

    return NativeOrReferenceComponents(
        "reference",
        ReferenceTelemetryEngine(),
        ReferenceTelemetryEngine,
        PythonTelemetryBatch.of,
        ReferenceGrantEvaluator(),
        ReferenceWebhookSigner,
        chain_events,
    )


def own_devices_only(parts: NativeOrReferenceComponents, owns_device: Callable[[int], bool]) -> NativeOrReferenceComponents:
    """The same parts for an instance of a cluster."""
    from adapters.engine.native import NativeEngine, read_blocks

    return replace(parts, engine=NativeEngine(owns_device), read_blocks=read_blocks)


def create_device_link(
    settings: Settings, clock: Clock, engine: NativeOrReferenceComponents, front: str = ""
) -> DeviceBrokerLink:
    """`front` names this instance of a cluster."""
    if not settings.has_broker:
        return NullDeviceLink()
    if settings.broker == "embedded":
        return _create_embedded_link(settings, front)
    return _create_external_link(settings, clock, engine, front)


def _broker_time(settings: Settings) -> Callable[[int], None]:
    """Tells the embedded broker, which stamps what arrives, the time that the service goes by."""
    if not settings.has_broker or settings.broker != "embedded":
        return lambda _: None
    from adapters.mqtt.embedded import set_broker_time

    return set_broker_time


def _create_external_link(settings: Settings, clock: Clock, engine: NativeOrReferenceComponents, front: str) -> DeviceBrokerLink:
    from adapters.mqtt.external import MosquittoDeviceLink
    from adapters.mqtt.external_connection import MosquittoConnectionSettings
    from adapters.mqtt.external_sessions import shared_by_cluster
    from adapters.mqtt.mosquitto import MosquittoCredentialStore, MosquittoFilePaths

    url = urlsplit(settings.broker)
    user, password = unquote(url.username or "latchboard"), unquote(url.password or "")
    broker = MosquittoConnectionSettings(url.hostname or "127.0.0.1", broker_port(url), user, password, tls=url.scheme == "mqtts")
    files = (settings.mosquitto_password_file, settings.mosquitto_acl_file, settings.mosquitto_pid_file)
    provisioner = None
    if files[0] is not None and files[1] is not None and files[2] is not None:
        provisioner = MosquittoCredentialStore(MosquittoFilePaths(files[0], files[1], files[2]), user, password)
    shared = None if settings.cluster is None else shared_by_cluster(broker, settings.cluster_partitions)
    return MosquittoDeviceLink(broker, clock, engine.make_batch, provisioner, settings.mosquitto_pid_file, shared, front)


def _create_embedded_link(settings: Settings, front: str) -> DeviceBrokerLink:
    try:
        from adapters.mqtt.embedded import BrokerListenAddress, EmbeddedBrokerSettings, EmbeddedDeviceLink
    except ImportError as error:
        raise StartupError(
            f"The embedded broker cannot be used: {error}. Build it with `make setup`, "
            "or set LATCHBOARD_BROKER to the URL of an external one."
        ) from None
    listeners = [
        BrokerListenAddress("tcp", settings.mqtt_host, settings.mqtt_port),
        BrokerListenAddress("ws", settings.mqtt_host, settings.mqtt_ws_port),
    ]
    if settings.mqtt_tls_port is not None:
        listeners.append(BrokerListenAddress("tcp", settings.mqtt_host, settings.mqtt_tls_port, tls=True))
    certificate, key, client_ca = settings.mqtt_tls_certificate, settings.mqtt_tls_key, settings.mqtt_client_ca
    broker = EmbeddedBrokerSettings(tuple(listeners), certificate, key, client_ca, broker_limits(settings))
    return EmbeddedDeviceLink(broker, front=front)


def broker_limits(settings: Settings) -> BrokerLimits:
    from adapters.mqtt.embedded import BrokerLimits, UnauthenticatedConnectionLimits

    connections = settings.mqtt_connections or start.default_mqtt_connections()
    pending = settings.mqtt_pending or max(8, connections // 4)
    networks = settings.unlimited_networks
    return BrokerLimits(
        max_connections=connections,
        rate_per_second=settings.ingest_limit,
        rate_burst=max(1.0, 2 * settings.ingest_limit),
        pending=UnauthenticatedConnectionLimits(
            max_pending=pending,
            max_pending_per_address=settings.mqtt_pending_per_address or max(8, pending // 2),
            ban_after=settings.ban_after,
            max_ban_s=float(settings.ban_max_seconds),
            trusted_networks=[(network.network_address, network.prefixlen) for network in networks],
        ),
    )


def broker_endpoint(settings: Settings) -> BrokerEndpoint:
    """Where devices reach the broker. For an external broker, the default is the address that the service itself uses."""
    host = settings.effective_mqtt_public_host
    endpoint = BrokerEndpoint(host, settings.mqtt_port, settings.mqtt_ws_port, settings.mqtt_tls_port)
    if settings.broker in ("embedded", "none"):
        authority_pem = _authority_pem(settings)
        return replace(endpoint, authority_pem=authority_pem, fingerprint=authority_pem and _fingerprint(settings))
    url, explicit = urlsplit(settings.broker), settings.model_fields_set
    if settings.mqtt_public_host is None:
        endpoint = replace(endpoint, host=url.hostname or endpoint.host)
    if url.scheme == "mqtts":
        return endpoint if "mqtt_tls_port" in explicit else replace(endpoint, tls_port=broker_port(url))
    return endpoint if "mqtt_port" in explicit else replace(endpoint, port=broker_port(url))


def _authority_pem(settings: Settings) -> str | None:
    """The certificate that `latchboard tls init` left beside the server's, if it is the one that certified the server."""
    if settings.mqtt_tls_port is None or settings.mqtt_tls_certificate is None:
        return None
    from adapters.crypto.certificates import find_authority  # few use MQTT over TLS

    chain = settings.mqtt_tls_certificate
    try:
        return find_authority(chain.read_bytes(), chain.with_name("ca.pem").read_bytes())
    except (OSError, ValueError):
        return None  # a public authority, or a wrong file: then the broker does not start


def _fingerprint(settings: Settings) -> str | None:
    if settings.mqtt_tls_certificate is None:
        return None
    from adapters.crypto.certificates import tasmota_fingerprint  # few use MQTT over TLS

    return tasmota_fingerprint(settings.mqtt_tls_certificate.read_bytes())


def broker_port(url: SplitResult) -> int:
    return url.port or (8883 if url.scheme == "mqtts" else 1883)
