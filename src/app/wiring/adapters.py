"""Constructs the adapters that the settings select: database, broker, engine, mail, keys.

Nothing is opened here; `wiring/lifecycle.py` opens the adapters in order. A StartupError names the setting to change. Adapters
that few installations use are imported where they are selected: each such import adds a tenth of a second or more to the start.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from adapters.clock import SystemClock
from adapters.crypto.key_ring import KeyRing, KeyRingFile, MasterKeyRing
from adapters.crypto.passwords import Argon2PasswordHasher, PyotpTotpCodec
from adapters.crypto.tokens import JwtAccessTokenCodec, KeyRingTokenHasher
from adapters.crypto.vault import AesVault
from adapters.crypto.webauthn import WebAuthnCeremonies
from adapters.delivery.address_guard import AddressGuard
from adapters.execution_and_approval_waiters import InProcessApprovalWaiter, InProcessExecutionWaiter
from adapters.feed_hub import InProcessFeedHub
from adapters.mail.background import InProcessBackgroundMailer, LogMailer
from adapters.message_catalog_translator import MessageCatalogTranslator
from adapters.mqtt.codec import ProfileDispatchingDeviceCodec
from adapters.mqtt.links import LeaderOnlyDeviceLink
from adapters.params_validator import JsonSchemaParamsValidator
from adapters.randomness import RandomIdAndSecretGenerator, RandomJitter
from adapters.recurrence import DateutilRecurrence
from adapters.storage.disk_space import DiskSpaceMonitor
from adapters.storage.sql import SqlDatabase
from adapters.storage.sql.postgres.leader_fence import PostgresLeaderFence
from app.config.settings import Settings, SettingsError
from app.runtime.first_start_or_lost_database import KEY_FILE, begin_first_start
from app.runtime.instance_lock import InstanceLock
from app.runtime.startup_errors import StartupError
from app.runtime.worker_process_supervisor import WorkerProcessContext
from app.wiring.device_link import create_device_link
from app.wiring.native_or_reference_components import load_engine, own_devices_only
from domain.accounts.ports import Mailer
from domain.devices.link import DeviceBrokerLink
from domain.feed.interest import FeedMessageBus
from domain.kernel.clock import Clock
from domain.kernel.idempotency import PROCESS_ID_LENGTH
from domain.webhooks.ports import Courier

if TYPE_CHECKING:
    from adapters.stream.worker_process_feed_bus import UnixSocketFeedBus
    from app.wiring.cluster import ClusterComponents

READER_POOL_SIZE = 6


class ServiceAdapters:
    def __init__(
        self, settings: Settings, *, on_interest: Callable[[], None], worker: WorkerProcessContext | None = None
    ) -> None:
        """`on_interest` is called when the feed gets a client, and when access changes. `worker`: set in a worker process. Raises
        SettingsError, StartupError, and the engine's errors."""
        prepare_data_dir(settings.data_dir)
        self.clock = SystemClock()
        self.ids = RandomIdAndSecretGenerator(self.clock.now_ms)
        self.process_id = secrets.token_bytes(PROCESS_ID_LENGTH)
        """Names this run of this instance."""
        self.key_ring = load_key_ring(settings)
        self.vault = AesVault(self.key_ring)
        self.digest = KeyRingTokenHasher(self.key_ring)
        self.totp = PyotpTotpCodec()
        self.passkeys = WebAuthnCeremonies(origin=settings.effective_public_url)
        self.tokens = JwtAccessTokenCodec(self.key_ring)
        self.hasher = Argon2PasswordHasher()
        self.login_hasher = Argon2PasswordHasher()
        """Threads and a queue of their own: strangers who sign in by the hundred do not delay a signed-in person's request."""
        self.mailer = create_mailer(settings)
        self.mail_queue = InProcessBackgroundMailer(self.mailer)
        self.cluster = _create_cluster(settings, self.process_id, self.clock)
        self.worker_bus = _create_worker_bus(settings, worker, self.feed_name)
        self.engine = load_engine(settings.engine)
        if self.cluster is not None:
            self.engine = own_devices_only(self.engine, self.cluster.holds)
        self.database = SqlDatabase(settings.effective_database_url, pool_size=READER_POOL_SIZE, instance=self.front)
        self.disk = create_disk_space(settings, self.database.file)
        self.instance_lock = InstanceLock(self.database.file)
        self.is_single_instance = self.database.file is not None
        """No other service writes to this database; the instance lock prevents it."""
        link = create_device_link(settings, self.clock, self.engine, self.front or "")
        is_only_holder = self.is_single_instance or self.cluster is not None or not settings.has_broker
        self.standby_link = None if is_only_holder else LeaderOnlyDeviceLink(link)
        """Set when several instances may compete for the devices: this link does nothing until the instance is leader."""
        self.link: DeviceBrokerLink = self.standby_link or link
        self.fence = None if self.standby_link is None else PostgresLeaderFence()
        self._has_broker = settings.has_broker
        self.courier = create_courier(settings, self.clock)
        self.jitter = RandomJitter()
        self.feed = InProcessFeedHub(on_filters_changed=on_interest)
        self.codec = ProfileDispatchingDeviceCodec()
        self.params_checker, self.recurrence = JsonSchemaParamsValidator(), DateutilRecurrence()
        self.translator = MessageCatalogTranslator()
        self.execution_waiter, self.approval_waiter = InProcessExecutionWaiter(), InProcessApprovalWaiter()

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
    from adapters.stream.worker_process_feed_bus import UnixSocketFeedBus

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
    return DiskSpaceMonitor(folder, percent=settings.disk_warning_percent, mib=settings.disk_warning_mib)


def create_courier(settings: Settings, clock: Clock) -> Courier:
    """The courier of the Rust extension, or the Python one with the reference engine."""
    guard = AddressGuard(
        allow_private=settings.webhook_allow_private,
        low_ports=settings.allowed_low_ports(),
        networks=settings.allowed_webhook_networks(),
        advice="For a receiver in a network of your own, the operator adds that network to LATCHBOARD_WEBHOOK_NETWORKS.",
    )
    path = settings.webhook_ca_file
    try:
        extra_ca = b"" if path is None else path.read_bytes()
        if settings.engine == "reference":
            from adapters.delivery.reference_courier import HttpxCourier

            return HttpxCourier(clock=clock, guard=guard, extra_ca=extra_ca)
        from adapters.delivery.courier import NativeCourier

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
