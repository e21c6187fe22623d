"""The event log as proof: linked records, seals, exports and their verification."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from adapters.crypto.key_ring import KeyRing
from adapters.crypto.tokens import Ed25519AuditSealKeyProvider, is_signed_by
from domain.audit.export import EVERYTHING, AuditExportGenerator, AuditSelection
from domain.audit.stream import AuditCursor, AuditStreamReader
from domain.audit.verify import AuditVerificationError, AuditVerificationReport, AuditVerifier
from domain.events.hash_chain import NO_HASH, digest_of, link
from domain.kernel.canonical_json import canonical_json
from domain.kernel.errors import Conflict, NotFound
from support.manual_clock import ManualClock
from support.sealing import RING, seal
from support.storage import NOW, StoredAccount, an_account, an_event

HOUR = 3_600_000
KEY = Ed25519AuditSealKeyProvider(ring=RING).newest().public_key


async def append(world: StoredAccount, count: int, **changes: Any) -> list[Any]:
    async with world.uow.write() as tx:
        stored = await tx.events.append_many([an_event(world, **changes) for _ in range(count)])
    return list(stored)


async def export(world: StoredAccount, selection: AuditSelection = EVERYTHING, ring: Any = RING, **more: Any) -> list[str]:
    exporter = AuditExportGenerator(uow=world.uow, clock=ManualClock(NOW), keys=Ed25519AuditSealKeyProvider(ring=ring))
    return [line async for line in exporter.lines(world.account.account_id, selection, **more)]


def verify(lines: Sequence[str], *keys: str, expected: Any = ()) -> AuditVerificationReport:
    return AuditVerifier(is_signed_by, keys or [KEY], expected).verify(lines)


async def sealed_log(world: StoredAccount) -> list[str]:
    """Two parts of three records, and one record that is not sealed."""
    for number in range(2):
        await append(world, 3, at_ms=NOW + number * HOUR, payload={"relay": "ON", "level": 1.5, "of": ["a", None, {"b": 2}]})
        await seal(world.uow, NOW + (number + 1) * HOUR)
    await append(world, 1, at_ms=NOW + 2 * HOUR)
    return await export(world)


def kinds(lines: Sequence[str]) -> list[str]:
    return [next(kind for kind in ("audit", "record", "elided", "seal", "end") if kind in json.loads(line)) for line in lines]


async def test_an_export_has_the_records_before_their_seal_and_proves_them(world: StoredAccount) -> None:
    lines = await sealed_log(world)
    assert kinds(lines) == ["audit", *["record"] * 3, "seal", *["record"] * 3, "seal", "record", "end"]
    report = verify(lines)
    assert (report.records, report.seals, report.unsealed, report.anchor, report.last_seal) == (7, 2, 1, None, 2)
    record = json.loads(lines[1])["record"]
    async with world.uow.read() as tx:
        [event] = [each for each in await tx.events.page(world.account.account_id, limit=9) if each.event_id == record["id"]]
    assert record == {
        "id": event.event_id,
        "accountId": event.account_id,
        "deviceId": event.device_id,
        "deviceName": event.device_name,
        "eventType": event.kind,
        "description": event.description,
        "timestamp": event.at_ms,
        "source": event.source,
        "address": event.address,
        "data": event.payload,
        "position": event.position,
        "writer": event.writer,
        "sequence": 1,
    }


FIELDS = [
    *("id", "accountId", "deviceId", "deviceName", "eventType", "description", "timestamp", "source", "address", "data"),
    *("position", "writer", "sequence"),
]


@pytest.mark.parametrize("field", FIELDS)
async def test_a_record_that_was_altered_in_any_field_is_named(world: StoredAccount, field: str) -> None:
    lines = await sealed_log(world)
    line = json.loads(lines[2])
    old = line["record"][field]
    line["record"][field] = {**old, "relay": "OFF"} if field == "data" else old + 1 if isinstance(old, int) else f"{old}x"
    lines[2] = json.dumps(line)
    with pytest.raises(AuditVerificationError, match=r"line [34]|sequence 2 of writer 0"):
        verify(lines)


def _swap(lines: list[str], a: int, b: int) -> None:
    lines[a], lines[b] = lines[b], lines[a]


def _swap_contents(lines: list[str]) -> None:
    """Each takes the other's place in the chain, and its hash."""
    one, two = json.loads(lines[1]), json.loads(lines[2])
    for name in ("sequence", "position"):
        one["record"][name], two["record"][name] = two["record"][name], one["record"][name]
    one["hash"], two["hash"] = two["hash"], one["hash"]
    lines[1], lines[2] = json.dumps(two), json.dumps(one)


def _change_seal(lines: list[str], name: str, value: Any) -> None:
    line = json.loads(lines[4])
    line["seal"][name] = value
    lines[4] = json.dumps(line)


DAMAGES: list[tuple[Callable[[list[str]], Any], str]] = [
    (lambda lines: lines.pop(2), r"sequence 2 of writer 0 is missing before seal 1"),
    (lambda lines: lines.pop(3), r"sequence 3 of writer 0 is missing before seal 1"),
    (lambda lines: lines.pop(5), r"sequence 4 of writer 0 is missing before seal 2"),
    (lambda lines: lines.pop(9), r"the export had 7 records and 0 hidden ones, and has 6 and 0"),
    (lambda lines: lines.pop(4), r"seal 1 is missing before seal 2"),
    (lambda lines: lines.pop(), r"cut off"),
    (lambda lines: lines.__delitem__(slice(5, None)), r"cut off"),
    (lambda lines: lines.insert(3, lines[2]), r"line 4: .* out of order or there twice"),
    (lambda lines: _swap(lines, 1, 2), r"line 3: .* out of order"),
    (lambda lines: _swap(lines, 4, 8), r"seal"),
    (_swap_contents, r"sequence 1 of writer 0\) was altered"),
    (lambda lines: _change_seal(lines, "sealedAt", 1), r"line 5: seal 1 was altered"),
    (lambda lines: _change_seal(lines, "heads", []), r"line 5: seal 1 was altered"),
    (lambda lines: _change_seal(lines, "publicKey", "00" * 32), r"line 5: seal 1 was altered"),
    (lambda lines: _change_seal(lines, "publicKey", "no key"), r"line 5: seal 1 was altered"),
    (lambda lines: lines.insert(2, "{}"), r"line 3 is no line of an audit export"),
    (lambda lines: lines.insert(2, "no json"), r"line 3 is no line of an audit export"),
    (lambda lines: lines.append(lines[1]), r"line 12 follows the end"),
    (lambda lines: lines.__setitem__(1, lines[1].replace('"data":{', '"data":{"relay":"OFF",')), r"line 2 is no line"),
    (lambda lines: lines.__setitem__(1, lines[1].replace("null", "NaN")), r"line 2 is no line"),
]


@pytest.mark.parametrize(("damage", "message"), DAMAGES)
async def test_a_damaged_export_is_refused_with_the_first_bad_line(
    world: StoredAccount, damage: Callable[[list[str]], Any], message: str
) -> None:
    lines = await sealed_log(world)
    damage(lines)
    with pytest.raises(AuditVerificationError, match=message):
        verify(lines)


async def test_a_chain_that_was_computed_again_after_a_change_does_not_fit_its_seal(world: StoredAccount) -> None:
    """What an attacker can do who has the database and not the keys."""
    await append(world, 2)
    await seal(world.uow, NOW)
    honest = await export(world)
    forged = list(honest)
    hashed = NO_HASH
    for place in (1, 2):
        line = json.loads(forged[place])
        line["record"]["description"] += " never"
        hashed = line["hash"] = link(hashed, digest_of(canonical_json(line["record"])))
        forged[place] = json.dumps(line)
    with pytest.raises(AuditVerificationError, match="was signed over another hash"):
        verify(forged)


async def test_a_log_whose_tail_was_cut_off_with_its_seals_lacks_the_seal_that_somebody_remembers(world: StoredAccount) -> None:
    await append(world, 3)
    await seal(world.uow, NOW)
    shorter = await export(world)  # as somebody exports who has set the database back
    await append(world, 3)
    await seal(world.uow, NOW + HOUR)
    lines = await export(world)
    report = verify(lines)
    assert verify(shorter).last_seal == 1  # nothing in the file shows it
    with pytest.raises(AuditVerificationError, match="seal 2 is missing"):
        verify(shorter, expected=[(report.last_seal, report.last_seal_hash)])
    with pytest.raises(AuditVerificationError, match="not the one you expected"):
        verify(lines, expected=[(1, "00" * 32)])
    verify(lines, expected=[(2, report.last_seal_hash)])


async def test_the_newest_seal_must_be_signed_with_a_key_that_the_reader_trusts(world: StoredAccount) -> None:
    await append(world, 1)
    with pytest.raises(AuditVerificationError, match="no seal"):
        verify(await export(world))
    await seal(world.uow, NOW, KeyRing.generate())
    with pytest.raises(AuditVerificationError, match="a key you did not name"):
        verify(await export(world))


async def test_after_a_rotation_the_newest_key_proves_what_older_keys_signed(world: StoredAccount) -> None:
    newer = RING.with_new_key()
    await append(world, 2)
    await seal(world.uow, NOW)
    await append(world, 2)
    await seal(world.uow, NOW + HOUR, newer)
    lines = await export(world, ring=newer)
    assert verify(lines, Ed25519AuditSealKeyProvider(ring=newer).newest().public_key).seals == 2
    with pytest.raises(AuditVerificationError, match="a key you did not name"):
        verify(lines)  # the older key alone could hide what came after it
    assert [key.public_key for key in Ed25519AuditSealKeyProvider(ring=newer).all()][1] == KEY


async def test_retention_deletes_whole_sealed_parts_and_the_rest_is_anchored_by_the_last_seal(world: StoredAccount) -> None:
    await sealed_log(world)
    async with world.uow.write() as tx:
        assert await tx.events.delete_older_than(NOW + HOUR + 1, 2) == 2
    report = verify(await export(world))  # while retention is at work
    assert (report.anchor, report.records) == (1, 4)
    async with world.uow.write() as tx:
        assert [await tx.events.delete_older_than(NOW + HOUR + 1, 2) for _ in range(2)] == [1, 0]
        assert await tx.events.delete_older_than(NOW + 10 * HOUR, 9) == 3
    report = verify(await export(world))
    assert (report.anchor, report.records, report.unsealed) == (2, 1, 1)
    await append(world, 1)
    assert await seal(world.uow, NOW + 9 * HOUR) == 1
    assert verify(await export(world)).last_seal == 3


async def test_an_account_that_rests_gets_no_seal_and_another_accounts_log_is_its_own(world: StoredAccount) -> None:
    other = an_account()
    async with world.uow.write() as tx:
        await tx.accounts.add(other)
    await append(world, 2)
    assert await seal(world.uow, NOW) == 1
    assert await seal(world.uow, NOW + 1) == 0
    await append(world, 2, account_id=other.account_id)
    assert await seal(world.uow, NOW + 2) == 1
    assert verify(await export(world)).records == 2
    text = "\n".join(await export(world))
    assert other.account_id not in text


async def test_two_processes_that_seal_at_once_do_not_seal_an_account_twice(world: StoredAccount) -> None:
    await append(world, 2)
    results = await asyncio.gather(*[seal(world.uow, NOW + number) for number in range(3)], return_exceptions=True)
    assert all(isinstance(result, int | Conflict) for result in results)
    report = verify(await export(world))
    assert (report.records, report.seals) == (2, 1)


async def test_chains_hold_under_concurrent_transactions_seals_and_rollbacks(world: StoredAccount) -> None:
    async def write(number: int) -> None:
        for turn in range(6):
            try:
                async with world.uow.write() as tx:
                    await asyncio.sleep(0)
                    await tx.events.append_many([an_event(world) for _ in range(1 + (number + turn) % 3)])
                    await asyncio.sleep(0.001)
                    if turn % 3 == 2:
                        raise ZeroDivisionError
            except ZeroDivisionError:
                pass

    async def seal_now_and_then() -> None:
        for number in range(5):
            await seal(world.uow, NOW + number)
            await asyncio.sleep(0.01)

    await asyncio.gather(*[write(number) for number in range(8)], seal_now_and_then())
    await seal(world.uow, NOW + 99)
    report = verify(await export(world))
    assert report.unsealed == 0
    async with world.uow.read() as tx:
        assert report.records == await tx.events.count(world.account.account_id) > 60


async def test_a_time_range_shows_its_records_and_only_digests_of_their_neighbours(world: StoredAccount) -> None:
    for number in range(8):
        await append(world, 2, at_ms=NOW + number * HOUR)
        await append(world, 1, at_ms=NOW + number * HOUR + 1)
        await seal(world.uow, NOW + number * HOUR + 2)
    lines = await export(world, AuditSelection(since_ms=NOW + 4 * HOUR + 1, until_ms=NOW + 5 * HOUR + 1))
    report = verify(lines)
    shown = [json.loads(line)["record"]["timestamp"] for line in lines if '"record"' in line]
    assert shown == [NOW + 4 * HOUR + 1, NOW + 5 * HOUR, NOW + 5 * HOUR]
    assert report.last_seal == 8
    assert report.records == 3 <= report.hidden
    assert report.left_out == 24 - report.records - report.hidden > 0
    place = next(place for place, line in enumerate(lines) if '"elided"' in line)
    forged = list(lines)
    forged[place] = json.dumps(
        {**json.loads(lines[place]), "elided": {**json.loads(lines[place])["elided"], "digest": "00" * 32}}
    )
    with pytest.raises(AuditVerificationError, match="was altered"):
        verify(forged)


async def test_the_story_of_a_command_follows_its_approval(world: StoredAccount) -> None:
    await append(world, 2)
    await append(world, 1, kind="approval_requested", payload={"approvalId": "apv_1", "reason": "frost"})
    await seal(world.uow, NOW)
    await append(world, 1, kind="approval_decided", payload={"approvalId": "apv_1", "executionId": "exe_1"})
    await append(world, 1, kind="command_result", payload={"executionId": "exe_10"})
    await append(world, 1, kind="command_result", payload={"executionId": "exe_1"})
    await seal(world.uow, NOW + 1)
    for name in ("exe_1", "apv_1"):
        lines = await export(world, AuditSelection(story_of=name))
        shown = [json.loads(line)["record"] for line in lines if '"record"' in line]
        assert [each["eventType"] for each in shown] == ["approval_requested", "approval_decided", "command_result"]
        assert verify(lines).hidden == 3
    with pytest.raises(NotFound):
        await export(world, AuditSelection(story_of="exe_none"))


async def test_an_export_continues_after_a_seal(world: StoredAccount) -> None:
    await sealed_log(world)
    lines = await export(world, after_seal=1)
    assert kinds(lines) == ["audit", "seal", *["record"] * 3, "seal", "record", "end"]
    assert verify(lines).anchor == 1
    assert kinds(await export(world, after_seal=0)) == kinds(await export(world))
    with pytest.raises(NotFound):
        await export(world, after_seal=3)


async def test_who_has_only_the_file_can_hide_nothing_in_it(world: StoredAccount) -> None:
    """Each of these follows the chain; only the service's signature over the whole export shows it."""
    await append(world, 1, kind="approval_requested", payload={"approvalId": "apv_1"})
    await append(world, 2, kind="command_result", payload={"executionId": "exe_1"})
    await seal(world.uow, NOW)
    complete = await export(world)
    excerpt = await export(world, AuditSelection(since_ms=NOW - HOUR))

    def hide(lines: list[str], place: int) -> list[str]:
        line = json.loads(lines[place])
        record = line["record"]
        digest = digest_of(canonical_json(record)).hex()
        hidden = {"elided": {"writer": record["writer"], "sequence": record["sequence"], "digest": digest}, "hash": line["hash"]}
        return [*lines[:place], canonical_json(hidden), *lines[place + 1 :]]

    def change(lines: list[str], kind: str, **values: Any) -> list[str]:
        place = 0 if kind == "audit" else len(lines) - 1
        line = json.loads(lines[place])
        line[kind] |= values
        return [*lines[:place], canonical_json(line), *lines[place + 1 :]]

    some = {"since": NOW - HOUR, "until": None, "commandId": None}
    for forged in (
        hide(excerpt, 1),
        change(hide(excerpt, 1), "end", records=2, hidden=1),
        hide(change(complete, "audit", selection=some), 1),
        change(complete, "audit", selection=some),
        change(excerpt, "audit", selection=some | {"since": NOW}),
        change(excerpt, "audit", selection=None),
        change(excerpt, "audit", exportedAt=1),
        change(excerpt, "end", leftOut=7),
        [*complete[:-1], excerpt[-1]],
        [*complete[:-1], '{"end":{"records":3}}'],
        [complete[0], *complete[1:4], *complete[5:]],
    ):
        assert forged not in (complete, excerpt)
        with pytest.raises(AuditVerificationError):
            verify(forged)
    verify(change(excerpt, "audit"))


async def stream(world: StoredAccount) -> list[str]:
    batch = await AuditStreamReader(uow=world.uow).read(world.account.account_id, AuditCursor())
    return [line.text for line in batch.lines]


async def test_what_a_log_server_has_of_the_stream_is_verified(world: StoredAccount) -> None:
    await sealed_log(world)
    lines = await stream(world)
    prefixed = [f"2026-11-27T10:00:00Z host latchboard - {line}\n" for line in lines]
    again = [*lines[:2], *lines[:5], *lines]  # batches whose delivery was not sure
    for received in (lines, prefixed, again):
        report = verify(received)
        assert (report.is_stream, report.records, report.last_seal, report.unsealed) == (True, 7, 2, 1)
    assert verify(again).repeated == 7
    later = verify(lines[2:])  # the log server's file begins later
    assert (later.anchor, later.unproven, later.records, later.last_seal) == (1, 1, 5, 2)


async def test_a_stream_that_was_changed_is_refused(world: StoredAccount) -> None:
    await sealed_log(world)
    lines = await stream(world)
    first_seal = next(place for place, line in enumerate(lines) if line.startswith('{"seal"'))
    altered = json.loads(lines[1])
    altered["record"]["description"] = "nothing happened"
    for forged, message in (
        ([*lines[:1], *lines[2:]], "is missing before seal 1"),
        ([*lines[:1], canonical_json(altered), *lines[2:]], "was altered"),
        ([*lines, canonical_json(altered)], "differs from the line that it repeats"),
        ([*lines[:first_seal], *lines[first_seal + 1 :]], "seal 1 is missing before seal 2"),
        ([*lines[:2], "no line of ours", *lines[2:]], "line 3 is no line of an audit export or stream"),
        (lines[:2], "no seal"),
    ):
        with pytest.raises(AuditVerificationError, match=message):
            verify(forged)
