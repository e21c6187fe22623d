"""Typed ids with a prefix.

An id is `<prefix>_` and at least 20 unguessable characters of `[a-z0-9]`. The prefix names the kind of resource, so an id in a
log line explains itself. Each kind is a type of its own: passing a device id as a key id is a type error.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NewType, Protocol

AccountId = NewType("AccountId", str)
UserId = NewType("UserId", str)
MembershipId = NewType("MembershipId", str)
SessionId = NewType("SessionId", str)
InvitationId = NewType("InvitationId", str)
PasskeyId = NewType("PasskeyId", str)
ProjectId = NewType("ProjectId", str)
DeviceId = NewType("DeviceId", str)
DeviceTypeId = NewType("DeviceTypeId", str)
GroupId = NewType("GroupId", str)
CommandId = NewType("CommandId", str)
ExecutionId = NewType("ExecutionId", str)
ScheduleId = NewType("ScheduleId", str)
RuleId = NewType("RuleId", str)
GrantId = NewType("GrantId", str)
KeyId = NewType("KeyId", str)
ApprovalId = NewType("ApprovalId", str)
EventId = NewType("EventId", str)
WebhookId = NewType("WebhookId", str)
DeliveryId = NewType("DeliveryId", str)
ProvisioningCodeId = NewType("ProvisioningCodeId", str)
ClaimId = NewType("ClaimId", str)
ChannelId = NewType("ChannelId", str)


class IdPrefix(StrEnum):
    ACCOUNT = "acc"
    USER = "usr"
    MEMBERSHIP = "mbr"
    SESSION = "ses"
    INVITATION = "inv"
    PASSKEY = "pky"
    PROJECT = "prj"
    DEVICE = "dev"
    DEVICE_TYPE = "dty"
    GROUP = "grp"
    COMMAND = "cmd"
    EXECUTION = "exe"
    SCHEDULE = "sched"
    RULE = "rul"
    GRANT = "grt"
    KEY = "key"
    APPROVAL = "apv"
    EVENT = "evt"
    WEBHOOK = "whk"
    DELIVERY = "whd"
    PROVISIONING_CODE = "pvc"
    CLAIM = "clm"
    CHANNEL = "nch"


_ID_PATTERN = re.compile(r"[a-z]{3,5}_[a-z0-9]{20,40}")


def has_id_format(prefix: IdPrefix, text: str) -> bool:
    """Whether `text` has the format of an id of this kind. A path parameter without it is answered with NotFound."""
    return text.startswith(f"{prefix}_") and _ID_PATTERN.fullmatch(text) is not None


def has_any_id_format(text: str) -> bool:
    """Whether `text` has the format of an id of any kind, and so is not free text."""
    return _ID_PATTERN.fullmatch(text) is not None


class IdAndSecretGenerator(Protocol):
    """Port: random ids, one-time codes and secrets. `random_alphanumeric` uses `[A-Za-z0-9]`."""

    def new_id(self, prefix: IdPrefix) -> str: ...

    def random_digits(self, count: int) -> str: ...

    def random_alphanumeric(self, length: int) -> str: ...

    def random_bytes(self, size: int) -> bytes:
        """`size` random bytes for secrets and keys."""
