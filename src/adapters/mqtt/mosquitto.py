"""What an external Mosquitto needs of this service: the files with the credentials and topic rights of devices, its
configuration, and an eye on what can cost messages that it has acknowledged to devices.

Mosquitto acknowledges a device's message when it has queued it for this service. While the service is away, that queue is all
there is. With Mosquitto's own defaults it drops what exceeds 1,000 messages, and a crash loses the last half hour. So the
configuration is checked where Mosquitto runs on this machine; everywhere, the limits of its CONNACK, whether our session was
kept, and its counter of dropped messages ($SYS).

One ACL serves all devices and never changes: `%u` stands for the login. It lists what devices of any profile may publish, so
topics to devices are closed, because they are not listed; a list per profile would need a rule per device.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import itertools
import logging
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

from domain.devices.broker_auth import DEVICE_PUBLISH_TOPICS
from domain.kernel.dataclasses import service
from domain.kernel.errors import Unavailable

log = logging.getLogger(__name__)

MAX_INFLIGHT = 1000
AUTOSAVE_S = 5
MAX_PACKET_BYTES = 128 * 1024
DEFAULT_DATA_DIR = Path("/var/lib/mosquitto")
_MAX_INCLUDED_FILES = 100
DROPPED_TOPIC = "$SYS/broker/publish/messages/dropped"
_SYS_TIMEOUT_S = 90.0
"""Longer than the largest `sys_interval` that the configuration may have."""
# As mosquitto_passwd writes it. The password has 190 bits, so more rounds would protect nothing.
_PBKDF2_ROUNDS = 101
_SALT_BYTES = 12
# Long enough to collect a burst of changes, too short to be noticed.
_WRITE_DELAY_S = 0.05


@dataclass(frozen=True, slots=True)
class MosquittoFilePaths:
    """The files Mosquitto is configured with; `pid_file` names the process to signal, as `pid_file` in its configuration."""

    password_file: Path
    acl_file: Path
    pid_file: Path


DEFAULT_FILES = MosquittoFilePaths(
    Path("/var/lib/mosquitto/latchboard.passwords"),
    Path("/var/lib/mosquitto/latchboard.acl"),
    Path("/run/mosquitto/mosquitto.pid"),
)


def password_line(username: str, password: str, salt: bytes) -> str:
    digest = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, _PBKDF2_ROUNDS)
    return f"{username}:$7${_PBKDF2_ROUNDS}${base64.b64encode(salt).decode()}${base64.b64encode(digest).decode()}"


def acl_text(service_user: str) -> str:
    writes = "\n".join(f"pattern write devices/%u/{topic}" for topic in DEVICE_PUBLISH_TOPICS)
    return f"user {service_user}\ntopic readwrite devices/#\ntopic read $SYS/broker/#\n\npattern read devices/%u/#\n{writes}\n"


class MosquittoCredentialStore:
    """Writes the two files and signals Mosquitto. Before `start`, changes are only collected, so that a fleet is one write. Later
    changes are written together: each caller waits for the one write and signal that contains its change."""

    def __init__(self, files: MosquittoFilePaths, service_user: str, service_password: str) -> None:
        self._files = files
        self._service_user = service_user
        self._lines = {service_user: self._password_line(service_user, service_password)}
        self._passwords: dict[str, str] = {}
        self._started = False
        self._write_task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Raises Unavailable when a file cannot be written. A Mosquitto that does not run yet reads the files when it starts."""
        self._started = True
        await asyncio.to_thread(self._replace_files)
        try:
            await asyncio.to_thread(self._signal)
        except Unavailable as error:
            log.error("%s", error.message)

    async def upsert_credentials(self, device_id: str, password: str) -> bool:
        """True when this replaces another password, and so disconnects the device.

        Raises Unavailable when a file cannot be written."""
        current = self._passwords.get(device_id)
        if current == password:
            return False
        self._passwords[device_id] = password
        self._lines[device_id] = self._password_line(device_id, password)
        await self._wait_for_write()
        return current is not None

    async def delete_credentials(self, device_id: str) -> bool:
        if self._passwords.pop(device_id, None) is None:
            return False
        del self._lines[device_id]
        await self._wait_for_write()
        return True

    async def _wait_for_write(self) -> None:
        if not self._started:
            return
        if self._write_task is None:
            self._write_task = asyncio.create_task(self._write_after_delay())
        # Shielded: the cancellation of one waiter must not cancel the write for the others.
        await asyncio.shield(self._write_task)

    async def _write_after_delay(self) -> None:
        await asyncio.sleep(_WRITE_DELAY_S)
        self._write_task = None
        await asyncio.to_thread(self._write_files)

    def _password_line(self, username: str, password: str) -> str:
        return password_line(username, password, os.urandom(_SALT_BYTES))

    def _write_files(self) -> None:
        self._replace_files()
        self._signal()

    def _replace_files(self) -> None:
        try:
            _replace_file(self._files.acl_file, acl_text(self._service_user))
            _replace_file(self._files.password_file, "\n".join(list(self._lines.values())) + "\n")
        except OSError as error:
            raise Unavailable(
                f"Mosquitto's credentials cannot be changed: {error}. Check its password and ACL files, and that this "
                "process may write them."
            ) from error

    def _signal(self) -> None:
        try:
            os.kill(int(self._files.pid_file.read_text(encoding="ascii")), signal.SIGHUP)
        except (OSError, ValueError) as error:
            raise Unavailable(
                f"Mosquitto does not learn of changed credentials: {error}. Check that it runs, as the same user as this "
                "process, and its pid file."
            ) from error


def _replace_file(path: Path, text: str) -> None:
    """Replaces the file atomically and keeps its owner and mode, because Mosquitto reads it as its own user."""
    mode, owner = 0o640, None
    with contextlib.suppress(FileNotFoundError):
        current = path.stat()
        mode, owner = current.st_mode & 0o777, (current.st_uid, current.st_gid)
    temporary = path.with_name(path.name + ".new")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "w", encoding="utf-8") as file:
        file.write(text)
    if owner is not None:
        with contextlib.suppress(PermissionError):
            os.chown(temporary, *owner)
    temporary.replace(path)


@dataclass(frozen=True, slots=True)
class RequiredMosquittoOption:
    name: str
    value: str
    default: str
    """Mosquitto's own, which holds where the option is missing."""
    reason: str
    accepts: Callable[[str], bool] | None = None
    """Other values that do as well; None: only `value`."""

    def fault(self, found: str | None) -> str | None:
        """What is wrong with the value of a configuration (None: not set there), or None."""
        actual = self.default if found is None else found
        if actual == self.value or (self.accepts is not None and self.accepts(actual)):
            return None
        origin = " (Mosquitto's default)" if found is None else ""
        return f"{self.name} is {actual}{origin}, set it to {self.value}: {self.reason}"


def _is_at_least(minimum: int) -> Callable[[str], bool]:
    return lambda text: text.isdigit() and (int(text) == 0 or int(text) >= minimum)


def _is_at_most(maximum: int) -> Callable[[str], bool]:
    return lambda text: text.isdigit() and 0 < int(text) <= maximum


OPTIONS = (
    RequiredMosquittoOption(
        "max_queued_messages",
        "0",
        "1000",
        "beyond this number Mosquitto drops messages that it has acknowledged, while the service is away; 0 is no limit",
    ),
    RequiredMosquittoOption("max_queued_bytes", "0", "0", "the same limit in bytes"),
    RequiredMosquittoOption(
        "max_inflight_messages",
        str(MAX_INFLIGHT),
        "20",
        "messages on their way to the service that it has not stored yet; 20 slow it down",
        _is_at_least(MAX_INFLIGHT),
    ),
    RequiredMosquittoOption("max_inflight_bytes", "0", "0", "the same limit in bytes"),
    RequiredMosquittoOption("persistence", "true", "false", "keeps queued messages and sessions when Mosquitto is restarted"),
    RequiredMosquittoOption(
        "autosave_interval",
        str(AUTOSAVE_S),
        "1800",
        "seconds of acknowledged messages that are lost at most when Mosquitto crashes or its machine fails",
        _is_at_most(60),
    ),
    RequiredMosquittoOption("autosave_on_changes", "false", "false", "with true the interval counts changes instead of seconds"),
    RequiredMosquittoOption("queue_qos0_messages", "false", "false", "nobody waits for QoS 0, so it must not fill the queue"),
    RequiredMosquittoOption("upgrade_outgoing_qos", "false", "false", "the service relies on the QoS of the sender"),
    RequiredMosquittoOption("memory_limit", "0", "0", "beyond it Mosquitto drops messages"),
    RequiredMosquittoOption(
        "max_packet_size",
        str(MAX_PACKET_BYTES),
        "0",
        "bytes; the service drops payloads above 64 KiB, and they would fill the queue",
        lambda text: text.isdigit(),
    ),
    RequiredMosquittoOption("retain_available", "true", "true", "schedules reach devices as retained messages"),
    RequiredMosquittoOption("allow_anonymous", "false", "false", "every device has its own login"),
    RequiredMosquittoOption(
        "per_listener_settings", "false", "false", "with true these options would hold for one listener only"
    ),
    RequiredMosquittoOption(
        "sys_interval", "10", "10", "seconds; the service watches the counter of dropped messages ($SYS)", _is_at_most(60)
    ),
)
LISTENER_OPTIONS = (
    RequiredMosquittoOption(
        "use_username_as_clientid", "true", "false", "a device cannot take over the session of another one, or of the service"
    ),
)
"""These belong below each `listener`. Above the first one they open another listener, on port 1883 of all addresses."""
FORBIDDEN = {"persistent_client_expiration": "Mosquitto would delete the queue of the service after this time; remove it."}


def mosquitto_config(
    files: MosquittoFilePaths, *, data_dir: Path = DEFAULT_DATA_DIR, listeners: Sequence[str] = ("1883",), user: str | None = None
) -> str:
    """A complete configuration. `listeners`: the arguments of each `listener` line, a port and perhaps an address. `user`: whom
    Mosquitto becomes; None: its default."""
    lines = [
        "# Mosquitto for Latchboard, written by `latchboard broker-config mosquitto`. Use it as the only configuration:",
        "# another file that sets the same options may undo them. For TLS add certfile and keyfile below the listener.",
        "",
    ]
    for option in OPTIONS:
        lines += [f"# {option.reason[0].upper()}{option.reason[1:]}.", f"{option.name} {option.value}"]
    lines += [
        "",
        "# Latchboard writes the first two files and signals the process of the third after a change.",
        f"password_file {files.password_file}",
        f"acl_file {files.acl_file}",
        f"pid_file {files.pid_file}",
        f"persistence_location {data_dir}/",
        *([f"user {user}"] if user else []),
        "",
        "set_tcp_nodelay true",
    ]
    for listener in listeners:
        lines += ["", f"listener {listener}"]
        for option in LISTENER_OPTIONS:
            lines += [f"# {option.reason[0].upper()}{option.reason[1:]}.", f"{option.name} {option.value}"]
    return "\n".join(lines) + "\n"


def find_config_file(pid_file: Path) -> Path:
    """The configuration file of the running Mosquitto, from its command line (Linux). Raises OSError, ValueError."""
    pid = int(pid_file.read_text(encoding="ascii"))
    arguments = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    for flag, value in itertools.pairwise(arguments):
        if flag in ("-c", "--config-file"):
            return Path(f"/proc/{pid}/cwd", value)
    raise ValueError("Mosquitto was started without a configuration file, so it has its defaults")


def read_config(path: Path) -> dict[str, str]:
    """The options of a configuration with its included directories; the last one counts. Raises OSError."""
    options: dict[str, str] = {}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        name, _, value = line.strip().partition(" ")
        if name == "include_dir":
            for included in sorted(Path(path.parent, value.strip()).glob("*.conf"))[:_MAX_INCLUDED_FILES]:
                options |= read_config(included)
        elif name and not name.startswith("#"):
            options[name] = value.strip()
    return options


def config_faults(options: Mapping[str, str]) -> list[str]:
    """What is wrong with a configuration, most important first."""
    found = [fault for option in (*OPTIONS, *LISTENER_OPTIONS) if (fault := option.fault(options.get(option.name))) is not None]
    return found + [f"{name} is set: {reason}" for name, reason in FORBIDDEN.items() if name in options]


@service
class MosquittoHealthMonitor:
    """`pid_file`: of a Mosquitto on this machine; None if it runs elsewhere."""

    pid_file: Path | None = None
    now_s: Callable[[], float] = monotonic
    dropped: int | None = field(default=None, init=False)
    """Messages that Mosquitto has dropped since it started; None until it tells."""
    _connections: int = field(default=0, init=False)
    _connected_at_s: float | None = field(default=None, init=False)
    _session_was_lost: bool = field(default=False, init=False)
    _limits: list[str] = field(default_factory=list, init=False)
    _config: list[str] = field(default_factory=list, init=False)

    def on_connack(self, session_present: bool, properties: Any, session_expiry_s: int) -> None:
        """`properties`: those of the CONNACK, as attributes; None without any."""
        self._connections += 1
        self._connected_at_s = self.now_s()
        if not session_present and self._connections > 1:
            self._session_was_lost = True
            log.error("Mosquitto has lost the session of this service, and with it the messages of devices that were in it")
        elif not session_present:
            log.info("Mosquitto has no session of this service yet; it keeps messages from now on")
        self._limits = _limit_faults(properties, session_expiry_s)

    def on_sys_message(self, topic: str, payload: bytes) -> None:
        if topic == DROPPED_TOPIC and payload.isdigit():
            self.dropped = int(payload)

    def check_config(self) -> None:
        """Read the configuration of a Mosquitto on this machine."""
        if self.pid_file is None:
            return
        try:
            self._config = config_faults(read_config(find_config_file(self.pid_file)))
        except (OSError, ValueError) as error:
            self._config = [f"its configuration cannot be checked ({error})"]

    def warnings(self) -> Sequence[str]:
        """What costs messages, or may; each with what to do. Empty when all is well."""
        found = [*self._config, *self._limits]
        if self._session_was_lost:
            found.append("it has lost this service's session since the service started: set persistence true")
        if self.dropped:
            found.append(f"it has dropped {self.dropped} messages since it started: set max_queued_messages 0")
        since_s = self._connected_at_s
        if self.dropped is None and since_s is not None and self.now_s() - since_s > _SYS_TIMEOUT_S:
            found.append(
                "it does not tell what it is, nor how many messages it drops: set sys_interval 10 and let this service read "
                "$SYS/broker/#"
            )
        return found


def _limit_faults(properties: Any, session_expiry_s: int) -> list[str]:
    """What the broker does not grant; an absent property is MQTT 5's default, which is enough."""
    found = []
    if getattr(properties, "MaximumQoS", 1) < 1:
        found.append("it allows QoS 0 only, which confirms nothing: allow QoS 1")
    if getattr(properties, "RetainAvailable", 1) == 0:
        found.append(
            "it keeps no retained messages, so schedules do not reach devices that connect later: set retain_available true"
        )
    granted_s = getattr(properties, "SessionExpiryInterval", session_expiry_s)
    if granted_s < session_expiry_s:
        found.append(f"it keeps this service's queue for {granted_s} s only: remove persistent_client_expiration")
    return found


def as_text(warnings: Sequence[str]) -> str | None:
    """One line, or None when there is no warning."""
    if not warnings:
        return None
    advice = "`latchboard broker-config mosquitto` writes a whole file."
    return f"Mosquitto may lose messages that it has acknowledged: {'; '.join(warnings)}. {advice}"
