"""A request that queues commands, repeated with its `Idempotency-Key`: who may have its stored response again.

Its authority is decided before the state of the device: a command that is gone, or a full list of rules, must not hide that the
caller has lost a role or grant since.
"""

from __future__ import annotations

from collections.abc import Sequence

from domain.commands.definition_model import CommandKind
from domain.commands.effective_definitions import find_definition
from domain.commands.model import CommandContext
from domain.grants.authorizer import Authorizer
from domain.grants.checks import GrantCheckInput
from domain.grants.ports import AuthorizationTx
from domain.kernel.caller import ApiKeyCaller, SessionCaller
from domain.kernel.idempotency import IdempotentReplayRollbackError


async def end_replay(
    authorizer: Authorizer,
    tx: AuthorizationTx,
    caller: SessionCaller | ApiKeyCaller,
    context: CommandContext,
    cmds: Sequence[str],
    now_ms: int,
    *,
    run_later: bool = False,
) -> None:
    """Authorise these commands as of now and end the transaction. A use of a limited grant is not counted again. `run_later`: for
    the commands of a schedule or rule.

    Raises IdempotentReplayRollbackError, or PermissionDenied as `Authorizer.authorize` does."""
    for cmd in cmds:
        definition = find_definition(context, cmd)
        is_query = definition is not None and definition.kind is CommandKind.QUERY
        request = GrantCheckInput(cmd, is_query, runs_later=run_later)
        known = None if run_later else context.grants
        await authorizer.authorize(tx, caller, context.device, request, now_ms, spend=False, known=known)
    raise IdempotentReplayRollbackError
