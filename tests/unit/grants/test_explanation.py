"""What is told about access."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from domain.grants.checks import GrantCheckInput
from domain.grants.explanation import AccessExplanation
from domain.grants.model import GrantSubject
from domain.kernel.caller import Role
from domain.kernel.errors import PermissionDenied, ValidationFailed
from support.manual_clock import START_MS
from support.schedule_world import ScheduleWorld


async def test_explaining_access_does_not_count_against_the_rate_limit(world: ScheduleWorld) -> None:
    device = await world.device()
    key = await world.key((device.device_id, ["ON"]), rate_limit_per_minute=2)
    gate, explain = world.gate, world.access.explain
    for _ in range(3):
        reported = await explain(world.session(), device.device_id, command="ON", key_id=key.key_id)
        assert (reported.allowed, reported.needs_approval) == (True, False)
    for _ in range(2):
        async with world.uow.write() as tx:
            await gate.authorize(tx, key, device, GrantCheckInput("ON"), world.clock.now_ms())
        world.clock.forward(7_000)
    reported = await explain(world.session(), device.device_id, command="ON", key_id=key.key_id)
    assert (reported.allowed, reported.code, reported.passes_from_ms) == (False, "RATE_LIMITED", START_MS + 60_000)
    world.clock.ms = START_MS + 60_000 - 1
    assert (await explain(world.session(), device.device_id, command="ON", key_id=key.key_id)).allowed is False
    world.clock.ms = START_MS + 60_000
    assert (await explain(world.session(), device.device_id, command="ON", key_id=key.key_id)).allowed is True


async def test_a_key_that_is_over_disabled_or_elsewhere_is_denied_whatever_its_grants_say(world: ScheduleWorld) -> None:
    device = await world.device()
    key_id = (await world.key((device.device_id, ["ON"]))).key_id
    owner = world.session()

    async def told(address: str | None = None) -> AccessExplanation:
        return await world.access.explain(owner, device.device_id, command="ON", key_id=key_id, address=address)

    async def limit(**changes: Any) -> None:
        async with world.uow.write() as tx:
            key = await tx.api_keys.get_for_update(owner.account_id, key_id)
            assert key is not None
            await tx.api_keys.save(replace(key, **changes))

    assert (await told()).allowed
    await limit(expires_ms=START_MS + 60_000, allowed_networks=("10.0.0.0/8",))
    reported = await told()
    assert (reported.allowed, reported.expires_ms, reported.allowed_networks) == (True, START_MS + 60_000, ("10.0.0.0/8",))
    assert (await told("10.1.2.3")).allowed
    elsewhere = await told("192.168.1.7")
    assert (elsewhere.allowed, elsewhere.code, len(elsewhere.grant_results)) == (False, "ADDRESS_NOT_ALLOWED", 1)
    world.clock.ms = START_MS + 60_000
    assert ((await told()).allowed, (await told()).code) == (False, "KEY_EXPIRED")
    await limit(enabled=False)
    assert ((await told()).allowed, (await told()).code) == (False, "UNAUTHENTICATED")
    with pytest.raises(ValidationFailed, match="is no IP address"):
        await told("here")
    with pytest.raises(ValidationFailed, match="matters for an API key only"):
        await world.access.explain(owner, device.device_id, command="ON", address="10.1.2.3")


async def test_an_explanation_names_the_failed_check_of_each_subject(world: ScheduleWorld) -> None:
    device = await world.device()
    await world.define(device, "FLUSH", requires_approval=True)
    owner, member = world.session(), world.session(Role.MEMBER)
    explain = world.access.explain
    assert (await explain(owner, device.device_id, command="FLUSH")).needs_approval is False
    assert (await explain(world.session(Role.ADMIN), device.device_id, command="FLUSH")).needs_approval is True
    assert (await explain(member, device.device_id)).allowed is True
    assert (await explain(member, device.device_id, command="ON")).code == "GRANT_MISSING"
    grant = await world.grant(GrantSubject(membership_id=member.membership_id), device.device_id, ["OFF"])
    reported = await explain(owner, device.device_id, command="ON", membership_id=member.membership_id)
    assert (reported.code, reported.grant) == ("COMMAND_NOT_GRANTED", grant)
    assert [finding.code for finding in reported.grant_results] == ["COMMAND_NOT_GRANTED"]
    viewer = world.session(Role.VIEWER).membership_id
    assert (await explain(owner, device.device_id, command="ON", membership_id=viewer)).code == "ROLE_REQUIRED"
    with pytest.raises(PermissionDenied):
        await explain(member, device.device_id, command="ON", membership_id=viewer)
    with pytest.raises(ValidationFailed) as refused:
        await explain(owner, device.device_id, command="FLY")
    assert refused.value.code == "UNKNOWN_COMMAND"
