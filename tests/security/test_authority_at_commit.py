"""Every writing operation of the document is called while its caller is being removed or demoted, while its key is disabled or
deleted, or while its grant is taken away: it takes effect before that, or not at all.

The operation stops at one of two places. Before its transaction the loss overtakes it: then it must change nothing. With its
transaction complete but not committed, the loss has to wait for it: then both take effect, in this order.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest
import pytest_asyncio
from sqlalchemy import select

from adapters.storage.sql.tables import metadata
from adapters.storage.sql.unit_of_work import SqlTransaction, SqlUnitOfWork
from domain.kernel.caller import Role
from security.access_table import operation_of, rows
from security.calls import BODIES, Ids
from security.people import ALL, People, a_key, gather
from support import postgres
from support.empty_database import empty_postgres
from support.http import PASSWORD
from support.in_process_app import ApiCaller, in_process_app
from support.two_instances import DATABASES, KEY_RING
from support.waiting import TIMEOUT_S

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROWS = rows()
WRITING = [row for row in ROWS if not row.startswith("GET ") and ROWS[row]["nobody"] == 401]
WITHOUT_EFFECT = {
    "POST /devices/{deviceId}/approvals/{approvalId}/withdraw",
    "POST /devices/{deviceId}/rules/test",
    "POST /devices/{deviceId}/rules/{ruleId}/test",
    "DELETE /auth/sessions/{sessionId}",
    "POST /auth/second-factor/totp/confirm",
    "POST /auth/second-factor/recovery-codes",
    "DELETE /auth/second-factor",
    "DELETE /auth/second-factor/totp",
    "POST /auth/step-up/passkey-options",
    "POST /auth/passkeys",
    "POST /auth/passkeys/options",
    "DELETE /auth/passkeys/{passkeyId}",
    "DELETE /auth/notifications/channels/{channelId}",
    "POST /auth/notifications/channels/{channelId}/test",
    "POST /auth/notifications/channels/{channelId}/confirm",
    "POST /groups/{groupId}/command/preview",
    "DELETE /service-sessions/{sessionId}",
    "POST /fleet/plan",
}
"""The tests of rules, the preview and the plan keep nothing; the others act only on what is the caller's own, and these calls name another's."""
OWN_PASSWORD = "POST /auth/password/change"
"""The table tries it with a password that is too short; here it comes to a transaction."""
BY_KEY = [row for row in WRITING if ROWS[row]["keyW"] < 300]
BY_MEMBERS_GRANT = [row for row in WRITING if ROWS[row]["Member"] == 403 and ROWS[row]["Member+"] < 300]
RECORDS = {"events", "event_writers", "event_counts", "event_totals", "write_probes", "login_failures"}
QUERIES = {table.name: select(table) for table in metadata.sorted_tables if table.name not in RECORDS}
"""Tables that a denied call may change: it is on record."""
_RECORDED = {"grant_revoked", "access_refused", "credentials_reveal_refused", "approval_refused"}


@dataclass
class Stop:
    """Where the next transaction of one caller stops, until it may go on."""

    place: str = ""
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    go_on: asyncio.Event = field(default_factory=asyncio.Event)

    async def at(self, place: str) -> None:
        if self.place == place:
            self.place = ""
            self.reached.set()
            async with asyncio.timeout(TIMEOUT_S):
                await self.go_on.wait()


@dataclass
class Stage:
    people: People
    stop: Stop
    database: str

    @property
    def owner(self) -> ApiCaller:
        return self.people.callers["Owner"]

    @asynccontextmanager
    async def call(self, caller: ApiCaller, row: str, ids: Ids, place: str) -> AsyncIterator[asyncio.Task[httpx.Response]]:
        """The call, stopped at `place` during the body, and complete after it."""
        self.stop.__init__(place)  # type: ignore[misc]
        method, path = operation_of(row)
        body = BODIES[row](ids) if row in BODIES else None
        if row == OWN_PASSWORD:
            body = {"currentPassword": PASSWORD, "newPassword": "another password"}
        task = asyncio.create_task(caller.send(method, path.format(**ids), body))
        reached = asyncio.create_task(self.stop.reached.wait())
        await asyncio.wait({task, reached}, return_when=asyncio.FIRST_COMPLETED, timeout=TIMEOUT_S)
        reached.cancel()
        try:
            assert not task.done(), f"{row} did not come to a transaction: {task.result().status_code} {task.result().text}"
            yield task
        finally:
            self.stop.place = ""
            self.stop.go_on.set()
            await asyncio.wait({task}, timeout=TIMEOUT_S)

    async def dump(self) -> dict[str, list[Any]]:
        """All rows but those of the records."""
        async with self.people.app.services.uow.read() as tx:
            found = await tx.session.read_batch(*((query, {}) for query in QUERIES.values()))
        return {name: [tuple(row) for row in rows] for name, rows in zip(QUERIES, found, strict=True)}

    async def recorded(self) -> set[str]:
        page = await self.owner.send_ok("GET", "/events?limit=1")
        return {event["eventType"] for event in page["data"]}

    async def until_blocked(self, loss: asyncio.Task[Any], row: str) -> None:
        """Until the loss waits for the operation. SQLite tells nobody who waits: there its one writer is the operation."""
        if self.database == "sqlite":
            await asyncio.sleep(0.01)
        else:
            connection = await asyncpg.connect(postgres.plain_url())
            query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    while not await connection.fetchval(query) and not loss.done():
                        await asyncio.sleep(0.005)
            finally:
                await connection.close()
        assert not loss.done(), f"the loss did not wait for {row}, which was about to commit"


@pytest_asyncio.fixture(params=DATABASES, scope="module", loop_scope="module")
async def stage(request: pytest.FixtureRequest) -> AsyncIterator[Stage]:
    stop = Stop()
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        settings: dict[str, Any] = {}
        if request.param == "postgres":
            settings = {"database_url": await empty_postgres(), "secret_keys": KEY_RING}
        _stop_transactions(patch, stop)
        async with in_process_app(Path(folder), **settings) as program:
            yield Stage(await gather(program), stop, request.param)


def _stop_transactions(patch: pytest.MonkeyPatch, stop: Stop) -> None:
    write, flush = SqlUnitOfWork.write, SqlTransaction.flush_events

    @asynccontextmanager
    async def stopped_write(uow: SqlUnitOfWork, caller: Any = None, *needs: Any, **more: Any) -> AsyncIterator[SqlTransaction]:
        if caller is not None:
            await stop.at("before")
        async with write(uow, caller, *needs, **more) as tx:
            yield tx

    async def stopped_flush(tx: SqlTransaction) -> None:
        await stop.at("complete")
        await flush(tx)

    patch.setattr(SqlUnitOfWork, "write", stopped_write)
    patch.setattr(SqlTransaction, "flush_events", stopped_flush)


@dataclass
class Victim:
    """`lose` is one way to lose what the call needs; afterwards the call is refused with `code`."""

    caller: ApiCaller
    lose: Callable[[], Awaitable[Any]]
    code: str


async def a_member(stage: Stage, role: Role) -> tuple[ApiCaller, str]:
    people = stage.people
    account_id = people.account.account.account_id
    email = f"victim{people.ours.number()}@example.com"
    member = await people.app.services.operator.add_user(account_id, email=email, password=PASSWORD, role=role)
    return await people.app.sign_in(email), member.membership.membership_id


async def removed(stage: Stage) -> Victim:
    caller, membership_id = await a_member(stage, Role.OWNER)
    return Victim(caller, lambda: stage.owner.send_ok("DELETE", f"/members/{membership_id}"), "UNAUTHENTICATED")


async def demoted(stage: Stage) -> Victim:
    caller, membership_id = await a_member(stage, Role.OWNER)
    role = {"role": "Viewer"}
    return Victim(caller, lambda: stage.owner.send_ok("PATCH", f"/members/{membership_id}", role), "ROLE_REQUIRED")


async def _granted_key(stage: Stage) -> tuple[ApiCaller, str, str, str]:
    caller, key_id = await a_key(stage.owner)
    grants = f"/devices/{(await stage.people.ours.create('{deviceId}'))['deviceId']}/grants"
    grant_id = (await stage.owner.send_ok("POST", grants, ALL | {"apiKeyId": key_id}))["grantId"]
    return caller, key_id, grants, grant_id


async def key_disabled(stage: Stage) -> Victim:
    caller, key_id, *_ = await _granted_key(stage)
    return Victim(caller, lambda: stage.owner.send_ok("PATCH", f"/keys/{key_id}", {"enabled": False}), "UNAUTHENTICATED")


async def key_deleted(stage: Stage) -> Victim:
    caller, key_id, *_ = await _granted_key(stage)
    return Victim(caller, lambda: stage.owner.send_ok("DELETE", f"/keys/{key_id}"), "UNAUTHENTICATED")


async def key_rotated(stage: Stage) -> Victim:
    caller, key_id, *_ = await _granted_key(stage)
    rotation = {"overlapSeconds": 0}
    return Victim(caller, lambda: stage.owner.send_ok("POST", f"/keys/{key_id}/rotate", rotation), "SECRET_REPLACED")


async def key_kept_to_a_network(stage: Stage) -> Victim:
    caller, key_id, *_ = await _granted_key(stage)
    narrow = {"allowedNetworks": ["192.0.2.0/24"]}
    return Victim(caller, lambda: stage.owner.send_ok("PATCH", f"/keys/{key_id}", narrow), "UNAUTHENTICATED")


async def grant_of_key_taken(stage: Stage) -> Victim:
    caller, _, grants, grant_id = await _granted_key(stage)
    return Victim(caller, lambda: stage.owner.send_ok("DELETE", f"{grants}/{grant_id}"), "GRANT_MISSING")


async def grant_of_member_taken(stage: Stage) -> Victim:
    caller, membership_id = await a_member(stage, Role.MEMBER)
    grants = f"/devices/{(await stage.people.ours.create('{deviceId}'))['deviceId']}/grants"
    grant_id = (await stage.owner.send_ok("POST", grants, ALL | {"membershipId": membership_id}))["grantId"]
    return Victim(caller, lambda: stage.owner.send_ok("DELETE", f"{grants}/{grant_id}"), "GRANT_MISSING")


Loss = Callable[[Stage], Awaitable[Victim]]
LOSSES: list[tuple[Loss, list[str]]] = [
    (removed, WRITING),
    (demoted, WRITING),
    (key_disabled, BY_KEY),
    (key_deleted, BY_KEY),
    (key_rotated, BY_KEY),
    (key_kept_to_a_network, BY_KEY),
    (grant_of_key_taken, BY_KEY),
    (grant_of_member_taken, BY_MEMBERS_GRANT),
]


async def test_what_these_tests_are_generated_from() -> None:
    assert len(WRITING) > 40
    assert len(BY_KEY) >= 5
    assert len(BY_MEMBERS_GRANT) >= 7


@pytest.mark.parametrize(("loss", "chosen"), LOSSES, ids=lambda value: getattr(value, "__name__", ""))
async def test_an_operation_that_the_loss_overtakes_changes_nothing(stage: Stage, loss: Loss, chosen: list[str]) -> None:
    wrong: list[str] = []
    for row in (row for row in chosen if row not in WITHOUT_EFFECT):
        ids, victim = await stage.people.ours.create(row), await loss(stage)
        mails = len(stage.people.app.mail.mails)
        async with stage.call(victim.caller, row, ids, "before") as call:
            await victim.lose()
            before = await stage.dump()
        answer, after = call.result(), await stage.dump()
        code = (
            "NOT_FOUND" if victim.code == "GRANT_MISSING" and ROWS[row]["key"] == 404 else victim.code
        )  # a group without a grant is hidden
        if answer.is_success or answer.json()["error"] != code:
            wrong.append(f"{row}: {answer.status_code} {answer.text[:160]}")
        wrong += [f"{row} changed {name}" for name in before if before[name] != after[name]]
        if len(stage.people.app.mail.mails) != mails:
            wrong.append(f"{row} sent a mail")
    assert wrong == []
    assert await stage.recorded() <= _RECORDED


@pytest.mark.parametrize(("loss", "chosen"), LOSSES, ids=lambda value: getattr(value, "__name__", ""))
async def test_a_loss_waits_for_an_operation_that_is_about_to_commit(stage: Stage, loss: Loss, chosen: list[str]) -> None:
    wrong: list[str] = []
    for row in (row for row in chosen if row not in WITHOUT_EFFECT):
        ids, victim = await stage.people.ours.create(row), await loss(stage)
        async with stage.call(victim.caller, row, ids, "complete") as call:
            losing = asyncio.ensure_future(victim.lose())
            await stage.until_blocked(losing, row)
        await losing  # it succeeds as well, after the operation
        expected = ROWS[row]["keyW" if "key" in loss.__name__ else "Member+" if "member" in loss.__name__ else "Owner"]
        expected = 200 if row == OWN_PASSWORD else expected
        if call.result().status_code != expected:
            wrong.append(f"{row}: {call.result().status_code}, not {expected}: {call.result().text[:160]}")
    assert wrong == []
