"""Many devices that listen, with a rule each, and the moment in which all the rules fire."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from domain.devices.model import DeviceStatus
from domain.devices.registration import DeviceRegistrationInput
from domain.ingest.results import NOTHING, IngestResult
from domain.kernel.caller import Role, SessionCaller
from domain.kernel.ids import DeviceId, RuleId
from domain.rules.model import Comparator, Rule, RuleAction, RuleCondition, RuleFiring, RuleTransition
from support.device_world import FakeLink
from support.in_process_app import InProcessApp


def link_of(app: InProcessApp) -> FakeLink:
    link = app.program.adapters.link
    assert isinstance(link, FakeLink)
    return link


SILENT = RuleCondition("temperature", Comparator.SILENT, 60.0)


async def add_rules(app: InProcessApp, count: int, condition: RuleCondition = SILENT) -> list[Rule]:
    created = await app.create_account("storm@example.com")
    member = created.owner.membership
    account_id = created.account.account_id
    caller = SessionCaller(account_id, member.user_id, member.membership_id, Role.OWNER, "192.0.2.1")
    model = await app.services.devices.register(caller, DeviceRegistrationInput("Pump", "ESP32", "PUMP"))
    rules: list[Rule] = []
    async with app.services.uow.write(caller=None) as tx:
        for number in range(count):
            device_id = DeviceId(f"dev_{number:020d}")
            device = await tx.devices.add(replace(model, device_id=device_id, device_no=0, status=DeviceStatus.ACTIVE))
            rule = Rule(
                rule_id=RuleId(f"rul_{number:020d}"),
                rule_no=0,
                account_id=account_id,
                device_id=device_id,
                device_no=device.device_no,
                name="storm",
                conditions=(condition,),
                action=RuleAction("OFF"),
                created_by=member.membership_id,
            )
            rules.append(await tx.rules.add(rule))
            link_of(app).listening.add(device_id)
    return rules


def all_fire(rules: Sequence[Rule], at_ms: int) -> IngestResult:
    return replace(
        NOTHING,
        rule_transitions=[RuleTransition(one.device_no, one.rule_no, at_ms, True, None, at_ms, True) for one in rules],
        rule_firings=[RuleFiring(one.device_no, one.rule_no, at_ms) for one in rules],
    )
