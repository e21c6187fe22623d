"""While a request waits for approval, an Admin cannot change the command so that it would need none.

Otherwise an Admin whose key asks could lift the approval instead of asking another person. An Owner may.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from domain.approvals.ports import HasApprovals
from domain.commands.definition_model import CommandDefinition
from domain.kernel.caller import Role, SessionCaller
from domain.kernel.errors import Conflict
from domain.kernel.ids import AccountId, DeviceId


def approval_names(definitions: Iterable[CommandDefinition]) -> frozenset[str]:
    """The commands that need approval."""
    return frozenset(one.name for one in definitions if one.requires_approval)


async def find_waiting_devices(tx: HasApprovals, account_id: AccountId, commands: Collection[str]) -> set[DeviceId]:
    """The devices for which a request for one of the commands waits."""
    if not commands:
        return set()
    return {device_id for device_id, cmd in await tx.approvals.list_pending_commands(account_id) if cmd in commands}


def check_nothing_waits(caller: SessionCaller, lifted: Collection[str], waits: bool) -> None:
    """`lifted`: the commands that would need no approval any more. Raises Conflict `REQUEST_PENDING`."""
    if waits and caller.role is not Role.OWNER:
        raise Conflict(
            f"A request for {', '.join(sorted(lifted))} waits for approval, which this change would lift. Have the request "
            "decided first, or ask an Owner.",
            code="REQUEST_PENDING",
        )
