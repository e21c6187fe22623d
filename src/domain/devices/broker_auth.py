"""What an external broker asks about a login: whether it may connect, publish and subscribe.

Each answer comes from the stored state, so a revoked device is refused at the broker's next question. A device may publish what
firmware publishes and read everything below its own prefix. The service itself has a login of its own.

A broker gives the session of a client id to whoever connects with it, and closes the connection of who had it. So a device's only
client id is its own device id, and the service's are refused to devices.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from domain.devices.model import Device, DeviceStatus, RefusalReason
from domain.devices.ports import DevicesTx
from domain.kernel.dataclasses import service
from domain.kernel.errors import SecretUnreadable
from domain.kernel.ids import DeviceId
from domain.kernel.ports import Vault
from domain.kernel.unit_of_work import UnitOfWork

# Below `devices/<id>/`: native, Tasmota, ESPHome (`<component>/<id>/state`) and Shelly (`answer` is our own `src`). They do not
# overlap except in unused names, because a topic that matches two subscriptions would be delivered twice.
DEVICE_PUBLISH_TOPICS = (
    "status/#",
    "state",
    "telemetry",
    "result",
    "sched/rev",
    "time/get",
    "hello",
    "stat/#",
    "tele/#",
    "debug",
    "+/+/state",
    "online",
    "events/#",
    "answer/#",
)
PREFIX = "devices"
SHARED_PREFIX = "$share/latchboard/"
"""Of the service's own subscriptions that the instances of a cluster share."""
SERVICE_CLIENT_ID = "latchboard"
"""Of the session with everything but shared telemetry."""
TELEMETRY_CLIENT_ID = f"{SERVICE_CLIENT_ID}-telemetry-"
"""Of the sessions that share telemetry; a number follows."""
_SERVICE_CLIENT_ID = re.compile(rf"{SERVICE_CLIENT_ID}|{TELEMETRY_CLIENT_ID}[0-9]{{1,2}}")
_DEVICE_ID = re.compile(r"dev_[a-z0-9]{20,64}")
_NOTHING = "-"


class BrokerAction(StrEnum):
    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"


@dataclass(frozen=True, slots=True)
class ServiceBrokerLogin:
    """The name and password with which the service itself connects to the broker."""

    username: str
    password: str


@service
class ExternalBrokerAuthService:
    uow: UnitOfWork[DevicesTx]
    vault: Vault
    service: ServiceBrokerLogin | None
    tell_refused: Callable[[Device, RefusalReason], None] = lambda device, reason: None
    """Is told of each refused connection with the name of an ACTIVE device."""

    def is_service(self, username: str) -> bool:
        return self.service is not None and username == self.service.username

    def owns_client_id(self, username: str, client_id: str) -> bool:
        """Whether this login may have the session of this client id."""
        return client_id == username or (self.is_service(username) and _SERVICE_CLIENT_ID.fullmatch(client_id) is not None)

    async def why_refused(self, username: str, password: str, client_id: str) -> RefusalReason | None:
        """None: it may connect, as an ACTIVE device or the service. WRONG_PASSWORD: also of a name that nobody has. Raises
        Unavailable."""
        device, stored = None, self.service.password if self.service and self.is_service(username) else None
        if stored is None:
            device, stored = await self._find_active(username)
        is_equal = hmac.compare_digest(password.encode(errors="replace"), (stored or _NOTHING).encode())
        if stored is None or not is_equal:
            refusal = RefusalReason.WRONG_PASSWORD
        elif not self.owns_client_id(username, client_id):
            refusal = RefusalReason.CLIENT_ID
        else:
            return None
        if device is not None and stored is not None:
            self.tell_refused(device, refusal)
        return refusal

    async def is_active(self, username: str) -> bool:
        """Whether this is an ACTIVE device. Raises Unavailable."""
        if not _DEVICE_ID.fullmatch(username):
            return False
        async with self.uow.read() as tx:
            device = await tx.devices.find(DeviceId(username))
        return device is not None and device.status is DeviceStatus.ACTIVE

    async def may_use_topic(self, username: str, action: BrokerAction, topic: str) -> bool:
        """`topic`: of a message, or the filter of a subscription. Raises Unavailable."""
        if self.is_service(username):
            return topic.removeprefix(SHARED_PREFIX).startswith(f"{PREFIX}/") or topic.startswith("$SYS/broker/")
        below = _below_own_prefix(username, topic)
        if below is None or (action is BrokerAction.PUBLISH and not may_publish(below)):
            return False
        return await self.is_active(username)

    async def _find_active(self, username: str) -> tuple[Device | None, str | None]:
        """An ACTIVE device with its password, which is None if it cannot be read."""
        if not _DEVICE_ID.fullmatch(username):
            return None, None
        async with self.uow.read() as tx:
            device = await tx.devices.find(DeviceId(username))
            credentials = await tx.credentials.get_for_update(DeviceId(username))
        if device is None or credentials is None or device.status is not DeviceStatus.ACTIVE:
            return None, None
        try:
            return device, self.vault.open(credentials.sealed, device.device_id)
        except SecretUnreadable:
            return device, None


def may_publish(below: str) -> bool:
    """`below` is the topic below the device's prefix."""
    levels = below.split("/")
    if "#" in below or "+" in below:
        return False
    return any(_matches(pattern.split("/"), levels) for pattern in DEVICE_PUBLISH_TOPICS)


def _below_own_prefix(username: str, topic: str) -> str | None:
    prefix = f"{PREFIX}/{username}/"
    return topic.removeprefix(prefix) if topic.startswith(prefix) and topic != prefix else None


def _matches(pattern: list[str], levels: list[str]) -> bool:
    if pattern[-1] == "#":
        return len(levels) >= len(pattern) - 1 and _matches_levels(pattern[:-1], levels[: len(pattern) - 1])
    return len(pattern) == len(levels) and _matches_levels(pattern, levels)


def _matches_levels(pattern: list[str], levels: list[str]) -> bool:
    return all(wanted in ("+", level) for wanted, level in zip(pattern, levels, strict=True))
