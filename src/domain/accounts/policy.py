"""Rules of the accounts part, without I/O: emails, passwords, names and roles; and the form and language of its mails."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from domain.accounts.model import Membership, User
from domain.accounts.ports import AccountsTx, Translator
from domain.kernel.caller import Role, SessionCaller, require_role
from domain.kernel.checks import FORBIDDEN_IN_LINE, single_line_fault
from domain.kernel.clock import DAY_MS, MINUTE_MS
from domain.kernel.errors import Conflict, PermissionDenied, ValidationFailed

ACCESS_TOKEN_TTL_MS = 15 * MINUTE_MS
SESSION_MAX_MS = 90 * DAY_MS
"""However often it is refreshed."""
REFRESH_TOKEN_TTL_MS = 30 * DAY_MS
REFRESH_TOKEN_LENGTH = 48

PASSWORD_MIN_LENGTH = 8
PASSWORD_MAX_LENGTH = 256
EMAIL_MAX_LENGTH = 254
NAME_MAX_LENGTH = 64
USER_AGENT_MAX_LENGTH = 256

_QUOTED_ONLY_CHARACTERS = r"@\s()<>\[\]:;,\\\""
"""Characters that an address allows only in quotes (RFC 5322, 3.2.3). Not accepted: a comma would make two recipients of one."""
_EMAIL_PATTERN = re.compile(
    rf"[^{_QUOTED_ONLY_CHARACTERS}{FORBIDDEN_IN_LINE}]{{1,64}}@[^{_QUOTED_ONLY_CHARACTERS}{FORBIDDEN_IN_LINE}]{{1,189}}"
)


def normalize_email(text: str) -> str:
    """Lower case, NFC (input methods differ), without surrounding spaces: the form that is stored and searched for."""
    return unicodedata.normalize("NFC", text.strip().lower())


def check_email(text: str) -> str:
    """The normalized email. Raises ValidationFailed for the field `email`."""
    email = normalize_email(text)
    if len(email) > EMAIL_MAX_LENGTH or _EMAIL_PATTERN.fullmatch(email) is None or single_line_fault(email) is not None:
        raise ValidationFailed.for_field("email", "must be an email address such as ada@example.com, at most 254 characters.")
    return email


def check_password(password: str, field: str = "password") -> str:
    """Raises ValidationFailed unless it is 8 to 256 characters."""
    if not PASSWORD_MIN_LENGTH <= len(password) <= PASSWORD_MAX_LENGTH:
        raise ValidationFailed.for_field(field, f"must have {PASSWORD_MIN_LENGTH} to {PASSWORD_MAX_LENGTH} characters.")
    return password


def check_name(name: str) -> str:
    """The name without surrounding spaces. Raises ValidationFailed unless 1 to 64 characters remain."""
    name = name.strip()
    if not 1 <= len(name) <= NAME_MAX_LENGTH:
        raise ValidationFailed.for_field("name", f"must have 1 to {NAME_MAX_LENGTH} characters.")
    fault = single_line_fault(name)
    if fault is not None:
        raise ValidationFailed.for_field("name", fault)
    return name


def clean_user_agent(text: str) -> str:
    """The header as one printable line of at most 256 characters: it is shown in the list of sessions."""
    return re.sub(f"[{FORBIDDEN_IN_LINE}]", "", text)[:USER_AGENT_MAX_LENGTH].strip()


def may_assign_role(own: Role, role: Role) -> bool:
    """Admins manage members; only an Owner assigns the role Owner."""
    return own is Role.OWNER or (own is Role.ADMIN and role is not Role.OWNER)


def check_can_assign_role(caller: SessionCaller, role: Role) -> None:
    """Raises PermissionDenied."""
    require_role(caller, Role.ADMIN)
    if not may_assign_role(caller.role, role):
        raise PermissionDenied("Only an Owner can assign the role Owner. Ask an Owner of the account.")


def check_can_change_member(caller: SessionCaller, target: Membership) -> None:
    """Only an Owner changes or removes Owners. Raises PermissionDenied."""
    require_role(caller, Role.ADMIN)
    if target.role is Role.OWNER and caller.role is not Role.OWNER:
        raise PermissionDenied("Only an Owner can change or remove an Owner. Ask an Owner of the account.")


def check_not_last_owner(target: Membership, new_role: Role | None, owners: int) -> None:
    """An account always has an Owner. `new_role` None means removal. Raises Conflict `LAST_OWNER`."""
    if target.role is Role.OWNER and new_role is not Role.OWNER and owners <= 1:
        raise Conflict("This is the account's last Owner. Make somebody else an Owner first.", code="LAST_OWNER")


@dataclass(frozen=True, slots=True)
class TranslatableMailTemplate:
    """In English, with its values as {name}. It is translated before the values are filled in: no value can look like text."""

    subject: str
    text: str

    def write(self, translator: Translator, language: str, **values: object) -> tuple[str, str]:
        """Subject and text."""
        return translator.translate(self.subject, language), translator.translate(self.text, language).format(**values)


async def choose_language(tx: AccountsTx, user: User | None, requested: str) -> str:
    """The one that the user has stored, else that of the request."""
    stored = None if user is None else await tx.users.find_language(user.user_id)
    return stored or requested
