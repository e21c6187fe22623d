"""Rules of invitations, without I/O: when a link is valid, and what its mail says."""

from __future__ import annotations

from enum import StrEnum

from domain.accounts.model import Invitation, Membership
from domain.accounts.policy import TranslatableMailTemplate, may_assign_role
from domain.kernel.clock import DAY_MS, HOUR_MS
from domain.sign_in.policy import AttemptLimit

INVITATION_TTL_MS = 7 * DAY_MS
INVITATION_TOKEN_LENGTH = 40
"""Letters and digits: 238 bits."""
INVITATION_MAILS = AttemptLimit(60, HOUR_MS)
"""Invitations that one account has mailed: nobody uses the service to fill a stranger's mailbox."""

MAIL = TranslatableMailTemplate(
    "You are invited to Latchboard",
    """Hello {name},

{inviter} invites you to the account {account} as {role}.
Open this link and choose your password. Nobody else gets to know it:

{link}

The link is valid for {days} days and can be used once.
If you did not expect this, you can ignore this mail.
""",
)


class InvitationStatus(StrEnum):
    """VOID: the one who invited has lost the role that is needed to give this one, or is no longer a member."""

    PENDING = "PENDING"
    EXPIRED = "EXPIRED"
    VOID = "VOID"


def invitation_status(invitation: Invitation, inviter: Membership | None, now_ms: int) -> InvitationStatus:
    """`inviter`: the membership `invited_by`, as it is now."""
    if inviter is None or inviter.account_id != invitation.account_id or not may_assign_role(inviter.role, invitation.role):
        return InvitationStatus.VOID
    return InvitationStatus.PENDING if now_ms < invitation.expires_ms else InvitationStatus.EXPIRED
