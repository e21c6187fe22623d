"""The lease of an instance that does not reach the database: it holds only while nobody does, and nobody is silent."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pytest

from domain.devices.credential_sync import RecentCredentialChanges
from domain.devices.model import DeviceCredentials
from domain.kernel.ids import DeviceId
from domain.partitions.liveness import AWAY_MS, OWN_LEASE_MS, POLL_AFTER_MS, OwnLeaseValidityService
from domain.partitions.model import LeaseLostError
from domain.partitions.ports import PeerLeaseAndCredentialQuery, PeerLeaseAndCredentialReply
from support.manual_clock import ManualClock

AWAY, RENEWING = PeerLeaseAndCredentialReply(AWAY_MS, []), PeerLeaseAndCredentialReply(AWAY_MS // 2, [])


class Others:
    """Answers with what is set."""

    def __init__(self) -> None:
        self.answers: dict[str, PeerLeaseAndCredentialReply] = {}
        self.bus_works = True
        self.asked: list[PeerLeaseAndCredentialQuery] = []

    async def poll_leases(
        self, question: PeerLeaseAndCredentialQuery, expected: Collection[str]
    ) -> Mapping[str, PeerLeaseAndCredentialReply]:
        self.asked.append(question)
        return {"a": RENEWING, **self.answers} if self.bus_works else self.answers


class Instance:
    """Its last beat was at the start."""

    def __init__(self, *others: str) -> None:
        self.clock, self.others = ManualClock(), Others()
        self.beat_ms = self.clock.monotonic_ms()
        self.unknown: list[str] = []
        self.is_replaced = False
        self.refused: list[str] = []
        self.changes = RecentCredentialChanges(self.clock, limit=3)
        self.lease = OwnLeaseValidityService(
            instance="a",
            clock=self.clock,
            calls=self.others,
            renewed_ms=lambda: self.beat_ms,
            members=lambda: frozenset({"a", *others}),
            changes=self.changes.of_last,
            unknown=lambda: self.unknown,
            refuse=self._refuse,
            is_replaced=lambda: self.is_replaced,
        )

    async def _refuse(self, device_id: str) -> None:
        self.refused.append(device_id)

    async def is_valid_with(self, **answers: PeerLeaseAndCredentialReply) -> bool:
        """Whether the lease holds after the others have answered so, a moment before it would end."""
        self.clock.forward(ms=POLL_AFTER_MS)
        self.others.answers = answers
        await self.lease.poll()
        self.clock.forward(ms=OWN_LEASE_MS - POLL_AFTER_MS)
        return self.lease.is_valid


async def test_it_holds_when_every_other_instance_is_without_the_database_too() -> None:
    instance = Instance("b", "c")
    assert not instance.lease.must_poll
    assert await instance.is_valid_with(b=AWAY, c=AWAY)
    assert (instance.lease.must_poll, instance.lease.is_database_away) == (True, True)
    instance.clock.forward(ms=POLL_AFTER_MS)
    assert not instance.lease.is_valid  # each round of answers holds for as long as a beat
    with pytest.raises(LeaseLostError):
        instance.lease.require()


async def test_it_holds_without_other_instances() -> None:
    assert await Instance().is_valid_with()


async def test_it_ends_when_the_bus_does_not_carry_even_its_own_answer() -> None:
    instance = Instance()
    instance.others.bus_works = False
    assert not await instance.is_valid_with()


@pytest.mark.parametrize(
    "answers",
    [
        {"b": AWAY},
        {},
        {"b": AWAY, "c": RENEWING},
        {"b": AWAY, "c": AWAY, "joined": RENEWING},
        {"b": AWAY, "c": PeerLeaseAndCredentialReply(AWAY_MS, None)},
    ],
    ids=["one is silent", "all are silent", "one renews", "a new one renews", "one does not know all changes"],
)
async def test_it_ends_when_one_renews_or_says_nothing(answers: dict[str, PeerLeaseAndCredentialReply]) -> None:
    assert not await Instance("b", "c").is_valid_with(**answers)


async def test_one_that_has_joined_meanwhile_is_expected_to_answer_from_then_on() -> None:
    instance = Instance("b")
    assert await instance.is_valid_with(b=AWAY, joined=AWAY)
    instance.others.answers = {"b": AWAY}
    await instance.lease.poll()
    instance.clock.forward(ms=POLL_AFTER_MS)
    assert not instance.lease.is_valid


async def test_one_that_says_that_it_joins_is_expected_to_answer() -> None:
    instance = Instance("b")
    instance.lease.on_joined("joined")
    assert not await instance.is_valid_with(b=AWAY)


async def test_devices_whose_credentials_have_changed_are_refused_before_the_lease_is_prolonged() -> None:
    instance = Instance("b")
    instance.unknown = ["dev_own"]
    assert await instance.is_valid_with(b=PeerLeaseAndCredentialReply(AWAY_MS, ["dev_revoked"]))
    assert instance.refused == ["dev_own", "dev_revoked"]
    assert instance.others.asked[0].period_ms > POLL_AFTER_MS  # also what was changed while it still reached the database


async def test_nothing_is_refused_while_the_answers_do_not_prolong_the_lease() -> None:
    instance = Instance("b")
    assert not await instance.is_valid_with(b=PeerLeaseAndCredentialReply(0, ["dev_revoked"]))
    assert instance.refused == []


def changed(instance: Instance, period_ms: int) -> Sequence[str] | None:
    return instance.lease.answer(PeerLeaseAndCredentialQuery(period_ms)).changed


def test_an_answer_names_the_changes_of_the_period_and_those_that_could_not_be_read() -> None:
    instance = Instance()
    for name in ("dev_1", "dev_2", "dev_3"):
        instance.changes.on_refused(DeviceId(name))
        instance.clock.forward(seconds=1)
    instance.unknown = ["dev_4"]
    assert changed(instance, 2_500) == ["dev_2", "dev_3", "dev_4"]
    assert changed(instance, 60_000) is None  # as many as are kept: there may have been more
    assert instance.lease.answer(PeerLeaseAndCredentialQuery(0)).renewed_ms_ago == 3_000


def password(device: str, sealed: bytes) -> DeviceCredentials:
    return DeviceCredentials(DeviceId(device), sealed)


def test_only_a_password_that_replaces_another_one_is_a_change() -> None:
    instance = Instance()
    instance.changes.on_start([password("dev_old", b"first")])
    instance.changes.on_admitted(password("dev_new", b"first"))
    assert changed(instance, 1_000) == []
    for name in ("dev_old", "dev_new"):  # renamed, or read twice
        instance.changes.on_admitted(password(name, b"first"))
    assert changed(instance, 1_000) == []
    for name in ("dev_old", "dev_new"):
        instance.changes.on_admitted(password(name, b"second"))
    assert changed(instance, 1_000) == ["dev_new", "dev_old"]


async def test_an_instance_that_renews_has_no_lease_while_others_replace_it() -> None:
    instance = Instance("b")
    assert instance.lease.is_valid
    instance.is_replaced = True
    assert (instance.lease.is_valid, instance.lease.remaining_s(), instance.lease.is_database_away) == (False, 0.0, False)
    with pytest.raises(LeaseLostError):
        instance.lease.require()
