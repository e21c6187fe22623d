"""What follows from the removal of one factor, in the transaction that removes it."""

from __future__ import annotations

from domain.kernel.caller import SessionCaller
from domain.sign_in.second_factor_policy import RolesRequiringSecondFactor, second_factor_required_error
from domain.sign_in.second_factor_ports import HasSecondFactors


async def complete_factor_removal(tx: HasSecondFactors, caller: SessionCaller, requirement: RolesRequiringSecondFactor) -> None:
    """With the last factor go the recovery codes. Raises Conflict `SECOND_FACTOR_REQUIRED` for a user who needs one."""
    if await tx.second_factors.is_enabled(caller.user_id):
        return
    if requirement.applies_to(caller.role):
        raise second_factor_required_error()
    await tx.second_factors.delete_all(caller.user_id)
