"""A command that waits for a decision: PENDING → APPROVED, DENIED, WITHDRAWN or EXPIRED. Exactly one takes effect,
and it is final. Here is also who sees a request, and who may decide it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from enum import StrEnum

from domain.devices.channels import RELAY_CHANNEL
from domain.kernel.caller import ApiKeyCaller, Role, SessionCaller, require_role
from domain.kernel.clock import DAY_MS, HOUR_MS, to_iso
from domain.kernel.domain_event import Json
from domain.kernel.errors import Conflict, PermissionDenied
from domain.kernel.ids import AccountId, ApprovalId, DeviceId, ExecutionId, GrantId, KeyId, MembershipId, SessionId, UserId

APPROVAL_TTL_MS = DAY_MS
MAX_PENDING_PER_DEVICE = 100
"""Pending requests per device: more than people decide on; bounds what a faulty client can queue."""
MAX_PENDING_PER_PROGRAM = 25
"""Of one API key or service session, over all devices: a program that asks in a loop leaves room for others. What it withdrew
within `WITHDRAWN_COUNTS_MS` counts too, because people may have been told of it."""
WITHDRAWN_COUNTS_MS = HOUR_MS
ALREADY_DECIDED = "ALREADY_DECIDED"


class ApprovalStatus(StrEnum):
    PENDING = "PENDING"
    APPROVED = "APPROVED"
    DENIED = "DENIED"
    WITHDRAWN = "WITHDRAWN"
    """By who asked."""
    EXPIRED = "EXPIRED"


@dataclass(frozen=True, slots=True)
class Requester:
    """Who requested the command: an API key, or a membership with its user. `session_id`: the service session that asked for
    the member; the request ends with it."""

    name: str
    key_id: KeyId | None = None
    membership_id: MembershipId | None = None
    user_id: UserId | None = None
    session_id: SessionId | None = None

    @property
    def label(self) -> str:
        return f"apikey:{self.key_id}" if self.key_id else f"user:{self.user_id}"

    @property
    def actor(self) -> tuple[KeyId | None, MembershipId | None, SessionId | None]:
        """Equal for what one key, one member by hand, or one service session asked for."""
        return self.key_id, self.membership_id, self.session_id

    @property
    def actor_id(self) -> str:
        return self.key_id or self.user_id or ""


@dataclass(frozen=True, slots=True)
class Approval:
    approval_id: ApprovalId
    account_id: AccountId
    device_id: DeviceId
    cmd: str
    params: Json
    ttl_ms: int
    status: ApprovalStatus
    requested_by: Requester
    grant_id: GrantId | None
    created_ms: int
    expires_ms: int
    decided_by: str | None = None
    decided_ms: int | None = None
    execution_id: ExecutionId | None = None
    reason: str | None = None
    """Why the requester wants it."""
    note: str | None = None
    """What the decider says about it."""
    channel: int = RELAY_CHANNEL
    seq: int = field(default=0, compare=False, repr=False)
    """Its place among those of its kind, in the order of their making. The storage gives it."""


def can_see(caller: SessionCaller | ApiKeyCaller, approval: Approval) -> bool:
    """Members of every role see every approval, as they do in the list; a key only its own."""
    return not isinstance(caller, ApiKeyCaller) or approval.requested_by.key_id == caller.key_id


def is_own_request(approval: Approval, user_id: UserId, membership_id: MembershipId, role: Role) -> bool:
    """Whether the person asked for it, with a session or a service session. Not so an Owner with a service session: who may send
    the command without approval may approve it, as for an API key. An account of one person and a program must work."""
    requester = approval.requested_by
    if requester.session_id is not None and role is Role.OWNER:
        return False
    return requester.user_id == user_id or requester.membership_id == membership_id  # both None for an API key


def check_can_decide(caller: SessionCaller, approval: Approval, wanted: ApprovalStatus, sponsors: Collection[str] = ()) -> None:
    """`sponsors`: the labels of those who made the requesting key or its grants on the device, or moved the device into their
    reach; an Admin among them counts as the requester. An Owner does not: an account of one person and a program's key must work.

    Raises PermissionDenied `ROLE_REQUIRED` below Admin, and `OWN_REQUEST` for approving one's own request. Denying one's own
    request is allowed."""
    require_role(caller, Role.ADMIN)
    if wanted is not ApprovalStatus.APPROVED:
        return
    if is_own_request(approval, caller.user_id, caller.membership_id, caller.role):
        program = " The service session that asks is yours." if approval.requested_by.session_id is not None else ""
        raise PermissionDenied(
            f"You cannot approve your own request.{program} Ask an Owner or another Admin of the account.", code="OWN_REQUEST"
        )
    if caller.role is not Role.OWNER and caller.label in sponsors:
        raise PermissionDenied(
            "You made the API key that asks, granted it access to this device, or moved the device into its reach: its request "
            "counts as your own. "
            "Ask an Owner or another Admin of the account.",
            code="OWN_REQUEST",
        )


def check_can_withdraw(caller: SessionCaller | ApiKeyCaller, approval: Approval) -> None:
    """A member withdraws what their service sessions asked for too. Raises PermissionDenied `NOT_OWN_REQUEST`."""
    requester = approval.requested_by
    if isinstance(caller, ApiKeyCaller):
        is_own = requester.key_id == caller.key_id
    else:
        is_own = requester.key_id is None and requester.membership_id == caller.membership_id
    if not is_own:
        raise PermissionDenied(
            "Only who asked can withdraw a request. To end the request of another, an Owner or Admin denies it.",
            code="NOT_OWN_REQUEST",
        )


def apply_decision(
    approval: Approval, status: ApprovalStatus, *, by: str | None, now_ms: int, note: str | None = None
) -> Approval:
    """The approval after a decision. Raises Conflict `ALREADY_DECIDED` when it is no longer pending or has expired."""
    if approval.status is not ApprovalStatus.PENDING:
        raise Conflict(f"This request is already {approval.status}. Exactly one decision counts.", code=ALREADY_DECIDED)
    if status is not ApprovalStatus.EXPIRED and now_ms >= approval.expires_ms:
        raise Conflict(f"This request expired at {to_iso(approval.expires_ms)}. Send the command again.", code=ALREADY_DECIDED)
    return replace(approval, status=status, decided_by=by, decided_ms=now_ms, note=note)
