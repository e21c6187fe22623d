"""Approvals against a model, with real SQLite: exactly one of any number of concurrent decisions and the expiry wins, and a
command that needs approval runs exactly once for each approval."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from domain.approvals.model import ApprovalStatus
from domain.grants.model import AppliesVia
from domain.grants.service import GrantInput, NewGrantInput
from domain.kernel.caller import Role, SessionCaller
from domain.kernel.errors import Conflict, DomainError
from domain.kernel.ids import ApprovalId, DeviceId, GrantId, KeyId
from security.people import a_key
from security.state_machines import run_machine, running_app
from support.in_process_app import InProcessApp
from support.thoroughness import usual_or_thorough
from support.two_instances import DATABASES

HOUR_MS = 3_600_000
LIFE_MS = 24 * HOUR_MS
GUARDED = {"name": "FLUSH", "label": "Flush", "requiresApproval": True}
NEW = {"name": "Pump", "boardType": "ESP32", "appType": "PUMP"}
_numbers = count(1)


class Approvals(RuleBasedStateMachine):
    """The model: the expiry and the status of each approval. `allowed`: the requester has a grant and the device accepts
    commands."""

    approvals = Bundle("approvals")

    def __init__(self, runner: asyncio.Runner, program: InProcessApp) -> None:
        super().__init__()
        self.runner, self.program = runner, program
        self.ends: dict[str, int] = {}
        self.status: dict[str, str] = {}
        self.enabled = True
        self.grant_id: GrantId | None = None

    @initialize()
    def begin(self) -> None:
        self.runner.run(self._begin())

    async def _begin(self) -> None:
        number = next(_numbers)
        created = await self.program.create_account(f"owner{number}@example.com")
        owner = created.owner.membership
        self.owner = SessionCaller(owner.account_id, owner.user_id, owner.membership_id, Role.OWNER)
        caller = await self.program.sign_in(f"owner{number}@example.com")
        self.device_id = DeviceId((await caller.send_ok("POST", "/devices/register", NEW))["deviceId"])
        await caller.send_ok("POST", f"/devices/{self.device_id}/credentials", {})
        await caller.send_ok("POST", f"/devices/{self.device_id}/commands", GUARDED)
        self.deciders = [self.owner]
        for name in ("a", "b"):
            member = await self.program.services.operator.add_user(
                owner.account_id, email=f"{name}{number}@example.com", password="correct horse", role=Role.ADMIN
            )
            ids = member.membership
            self.deciders.append(SessionCaller(owner.account_id, ids.user_id, ids.membership_id, Role.ADMIN))
        self.requester, self.key_id = await a_key(caller)
        await self._grant()

    async def _grant(self) -> None:
        draft = NewGrantInput(GrantInput(("FLUSH",)), KeyId(self.key_id), None, AppliesVia.DEVICE)
        self.grant_id = (await self.program.services.grants.create(self.owner, self.device_id, draft)).grant.grant_id

    def now_ms(self) -> int:
        return self.program.clock.now_ms()

    def is_open(self, approval_id: str) -> bool:
        return self.status[approval_id] == "PENDING" and self.now_ms() < self.ends[approval_id]

    @property
    def may_run(self) -> bool:
        return self.enabled and self.grant_id is not None

    @rule(target=approvals)
    def request_approval(self) -> str:
        path = f"/devices/{self.device_id}/command"
        answer = self.runner.run(self.requester.send("POST", path, {"cmd": "FLUSH", "ttlSeconds": 86_400}))
        if not self.may_run:
            assert answer.status_code == 403
            return ""
        assert answer.status_code == 202, answer.text
        approval_id: str = answer.json()["approvalId"]
        self.ends[approval_id], self.status[approval_id] = self.now_ms() + LIFE_MS, "PENDING"
        return approval_id

    async def _decide(self, approval_id: str, decider: int, decision: str) -> str:
        service, who = self.program.services.approvals, self.deciders[decider]
        try:
            if decision == "EXPIRED":
                await service.expire_due()
                return "looked"
            act = service.approve if decision == "APPROVED" else service.deny
            await act(who, self.device_id, ApprovalId(approval_id))
        except Conflict:
            return "late"
        except DomainError as error:
            return error.code
        return decision

    @rule(approval_id=approvals, decider=st.integers(0, 2), decision=st.sampled_from(["APPROVED", "DENIED"]))
    def decide(self, approval_id: str, decider: int, decision: str) -> None:
        if not approval_id:
            return
        reported = self.runner.run(self._decide(approval_id, decider, decision))
        if not self.is_open(approval_id):
            assert reported == "late"
        elif decision == "APPROVED" and not self.may_run:
            assert reported in ("GRANT_MISSING", "DEVICE_DISABLED")
        else:
            assert reported == decision
            self.status[approval_id] = decision

    @rule(
        approval_id=approvals,
        wanted=st.lists(
            st.tuples(st.integers(0, 2), st.sampled_from(["APPROVED", "DENIED", "EXPIRED"])), min_size=2, max_size=12
        ),
    )
    def decide_at_once(self, approval_id: str, wanted: list[tuple[int, str]]) -> None:
        if approval_id:
            self.race(approval_id, wanted)

    def race(self, approval_id: str, wanted: list[tuple[int, str]]) -> None:
        async def all_at_once() -> list[str]:
            return await asyncio.gather(*(self._decide(approval_id, *each) for each in wanted))

        was_open, reported = self.is_open(approval_id), Counter(self.runner.run(all_at_once()))
        winners = reported["APPROVED"] + reported["DENIED"]
        possible = {decision for _, decision in wanted} & ({"APPROVED", "DENIED"} if self.may_run else {"DENIED"})
        assert winners == (1 if was_open and possible else 0), reported
        if winners:
            self.status[approval_id] = "APPROVED" if reported["APPROVED"] else "DENIED"
        if any(decision == "EXPIRED" for _, decision in wanted):
            self.expire()

    @rule()
    def expire(self) -> None:
        self.runner.run(self.program.services.approvals.expire_due())
        for approval_id, end in self.ends.items():
            if self.status[approval_id] == "PENDING" and self.now_ms() >= end:
                self.status[approval_id] = "EXPIRED"

    @rule(hours=st.sampled_from([1, 12, 24]))
    def wait(self, hours: int) -> None:
        self.program.clock.forward(minutes=60 * hours)

    @rule(short_ms=st.sampled_from([0, 1]), approval_id=approvals)
    def wait_for_its_last_moment(self, short_ms: int, approval_id: str) -> None:
        if approval_id and self.now_ms() < self.ends[approval_id] - 1:
            self.program.clock.forward(seconds=(self.ends[approval_id] - short_ms - self.now_ms()) / 1000)

    @rule()
    def toggle_the_device(self) -> None:
        self.runner.run(self.program.services.devices.toggle_enabled(self.owner, self.device_id))
        self.enabled = not self.enabled

    @rule()
    def give_or_take_the_grant(self) -> None:
        if self.grant_id is None:
            self.runner.run(self._grant())
        else:
            self.runner.run(self.program.services.grants.delete(self.owner, self.device_id, self.grant_id))
            self.grant_id = None

    @invariant()
    def a_command_ran_for_each_approval_and_no_other(self) -> None:
        async def stored() -> tuple[dict[str, str], list[str]]:
            listed = await self.program.services.approvals.list(self.owner, device_id=self.device_id)
            page = await self.program.services.control.list_executions(self.owner, self.device_id, limit=200)
            return {one.approval_id: one.status.value for one in listed}, [one.execution_id for one in page]

        statuses, executions = self.runner.run(stored())
        assert statuses == self.status
        assert len(executions) == list(self.status.values()).count(ApprovalStatus.APPROVED.value)


@pytest.mark.parametrize("database", DATABASES)
def test_exactly_one_decision_wins(tmp_path: Path, database: str) -> None:
    with running_app(tmp_path, database) as (runner, program):
        run_machine(
            lambda: Approvals(runner, program), examples=15 if database == "sqlite" else usual_or_thorough(4, 15), steps=20
        )


def test_one_of_a_hundred_decisions_or_the_expiry_wins(tmp_path: Path) -> None:
    with running_app(tmp_path) as (runner, program):
        for late_ms in (1, 0):
            machine: Any = Approvals(runner, program)
            machine.begin()
            approval_id = machine.request_approval()
            machine.wait_for_its_last_moment(late_ms, approval_id)
            machine.race(approval_id, [(number % 3, ("APPROVED", "DENIED", "EXPIRED")[number % 3]) for number in range(100)])
            machine.a_command_ran_for_each_approval_and_no_other()
            assert machine.status[approval_id] in (("APPROVED", "DENIED") if late_ms else ("EXPIRED",))
