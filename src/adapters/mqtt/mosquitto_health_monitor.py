"""Watches an external Mosquitto for what can cost messages that it has acknowledged to devices.

It looks at the limits of the CONNACK, at whether our session was kept, at the counter of dropped messages ($SYS), and, where
Mosquitto runs on this machine, at its configuration.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

from adapters.mqtt.mosquitto_config_check import config_faults, find_config_file, read_config

DROPPED_TOPIC = "$SYS/broker/publish/messages/dropped"
_SYS_TIMEOUT_S = 90.0
"""Longer than the largest `sys_interval` that the configuration may have."""

log = logging.getLogger(__name__)


class MosquittoHealthMonitor:
    def __init__(self, pid_file: Path | None = None, *, now_s: Callable[[], float] = monotonic) -> None:
        """`pid_file`: of a Mosquitto on this machine; None if it runs elsewhere."""
        self._pid_file = pid_file
        self._now_s = now_s
        self._connections = 0
        self._connected_at_s: float | None = None
        self._session_was_lost = False
        self._limits: list[str] = []
        self._config: list[str] = []
        self.dropped: int | None = None
        """Messages that Mosquitto has dropped since it started; None until it tells."""

    def on_connack(self, session_present: bool, properties: Any, session_expiry_s: int) -> None:
        """`properties`: those of the CONNACK, as attributes; None without any."""
        self._connections += 1
        self._connected_at_s = self._now_s()
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
        if self._pid_file is None:
            return
        try:
            self._config = config_faults(read_config(find_config_file(self._pid_file)))
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
        if self.dropped is None and since_s is not None and self._now_s() - since_s > _SYS_TIMEOUT_S:
            found.append(
                "it does not tell how many messages it drops: set sys_interval 10 and let this service read $SYS/broker/#"
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
