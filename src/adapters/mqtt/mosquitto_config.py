"""The configuration that an external Mosquitto needs. `mosquitto_config_check.py` checks that of one that runs.

Mosquitto acknowledges a device's message when it has queued it for this service. While the service is away, that queue is all
there is. With Mosquitto's own defaults it drops what exceeds 1,000 messages, and a crash loses the last half hour.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from adapters.mqtt.mosquitto_credentials import MosquittoFilePaths

MAX_INFLIGHT = 1000
AUTOSAVE_S = 5
MAX_PACKET_BYTES = 128 * 1024
DEFAULT_DATA_DIR = Path("/var/lib/mosquitto")
DEFAULT_FILES = MosquittoFilePaths(
    Path("/var/lib/mosquitto/latchboard.passwords"),
    Path("/var/lib/mosquitto/latchboard.acl"),
    Path("/run/mosquitto/mosquitto.pid"),
)


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
