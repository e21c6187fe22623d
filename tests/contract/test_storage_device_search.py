"""Searching devices: every storage finds the same ones, in the same order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from domain.accounts.model import Project
from domain.devices.model import DeviceMetadata, DeviceStatus
from domain.devices.search import DeviceCounts, DeviceSearch, DeviceSort, DeviceStateFilter
from domain.ingest.ports import IngestDeadLetter
from support.storage import NOW, StoredAccount, a_device, a_schedule, new_id


async def populate(world: StoredAccount, tx: Any) -> None:
    """Four devices besides the one of the world, which is renamed: a fleet with every state."""
    account_id, project_id = world.account.account_id, world.project.project_id
    other = Project(new_id("prj"), account_id, "Field", False, NOW)
    await tx.projects.add(other)
    await tx.devices.save(replace(world.device, name="zeta 100%"))
    for name, status, project, about in (
        ("Alpha pump", DeviceStatus.ACTIVE, project_id, DeviceMetadata(location="Greenhouse 2", tags=("wet-zone",))),
        ("beta_fan", DeviceStatus.ACTIVE, other.project_id, DeviceMetadata()),
        ("Gamma", DeviceStatus.REVOKED, project_id, DeviceMetadata()),
        ("Gone", DeviceStatus.DELETING, project_id, DeviceMetadata()),
    ):
        device = await tx.devices.add(a_device(account_id, project, name=name, status=status, about=about))
        if name == "Alpha pump":
            await tx.devices.set_online(device.device_id, True)
            await tx.devices.set_relay_many({device.device_id: True}, 5)
            await tx.devices.update_last_seen({device.device_no: NOW + 5})


async def walked(world: StoredAccount, tx: Any, search: DeviceSearch) -> list[str]:
    """The names, page by page."""
    names: list[str] = []
    while page := await tx.device_search.find(world.account.account_id, search):
        names += [device.name for device in page]
        search = replace(search, after=search.position_of(page[-1]))
    return names


async def test_devices_are_found_by_words_state_and_project_sorted_and_in_pages(world: StoredAccount) -> None:
    async with world.uow.write() as tx:
        await populate(world, tx)

        async def found(text: str = "", **search: Any) -> list[str]:
            wanted = DeviceSearch(words=DeviceSearch.words_of(text), **search)
            devices = await tx.device_search.find(world.account.account_id, wanted)
            if search.get("limit") is None:
                assert await tx.device_search.count(world.account.account_id, wanted) == len(devices)
            return [device.name for device in devices]

        everything = ["zeta 100%", "Alpha pump", "beta_fan", "Gamma"]
        assert await found() == everything
        assert await found("ALPHA") == await found("greenhouse pump") == await found("wet-zone") == ["Alpha pump"]
        assert await found("pump fan") == []
        assert await found(tag="wet-zone") == await found("pump", tag="wet-zone") == ["Alpha pump"]
        assert (
            await found(tag="we") == await found(tag="Wet-zone") == await found(tag='wet-zone","') == await found(tag="%") == []
        )
        assert await found("a_f") == ["beta_fan"]  # not a pattern
        assert await found("0%") == ["zeta 100%"]
        assert await found(state=DeviceStateFilter.ONLINE) == await found(state=DeviceStateFilter.ON) == ["Alpha pump"]
        assert "beta_fan" in await found(state=DeviceStateFilter.OFFLINE)
        assert await found(state=DeviceStateFilter.REVOKED) == ["Gamma"]
        [beta] = [d for d in await tx.devices.list(world.account.account_id) if d.name == "beta_fan"]
        assert await found(project_id=beta.project_id) == ["beta_fan"]
        assert await found(sort=DeviceSort.NAME) == ["Alpha pump", "beta_fan", "Gamma", "zeta 100%"]
        assert (await found(sort=DeviceSort.LAST_SEEN))[-1] == (await found(sort=DeviceSort.LAST_SEEN_NEWEST))[0] == "Alpha pump"
        await tx.devices.save(replace(beta, external_id="SN-7"))
        assert await found(external_id="SN-7") == ["beta_fan"]
        assert await found(external_id="SN-8") == []
        for sort in (None, *DeviceSort):
            whole = await found(sort=sort)
            assert whole == await walked(world, tx, DeviceSearch(sort=sort, limit=1))
        assert await tx.device_search.find(new_id("acc"), DeviceSearch()) == []


NAMES = {
    "Насос №1": ("насос", "НАСОС", "насос №1"),
    "Ölpumpe": ("ölpumpe", "ÖLPUMPE", "O\u0308lpumpe"),
    "E\u0301CLUSE": ("écluse", "ÉCLUSE", "Écluse"),
    "Ωμέγας": ("ωμέγας", "ΩΜΈΓΑΣ", "ωμέγασ"),
    "Straßentor": ("STRASSENTOR", "straßentor"),
    "İskele": ("İSKELE", "i\u0307skele"),
}


async def test_a_device_is_found_by_its_own_name_in_any_case_and_composition(world: StoredAccount) -> None:
    account_id = world.account.account_id
    async with world.uow.write() as tx:
        for name in NAMES:
            await tx.devices.add(a_device(account_id, world.project.project_id, name=name))

        async def found(text: str) -> list[str]:
            wanted = DeviceSearch(words=DeviceSearch.words_of(text))
            assert await tx.device_search.count(account_id, wanted) == len(await tx.device_search.find(account_id, wanted))
            return [device.name for device in await tx.device_search.find(account_id, wanted)]

        for name, asked in NAMES.items():
            assert [await found(text) for text in (name, *asked)] == [[name]] * (len(asked) + 1)
        [renamed] = [device for device in await tx.devices.list(account_id) if device.name == "Ölpumpe"]
        await tx.devices.save(replace(renamed, name="Дверь", external_id="ШЛЮЗ-7"))
        assert await found("ölpumpe") == []
        assert await found("ДВЕРЬ") == await found("шлюз-7") == ["Дверь"]
        by_name = await tx.device_search.find(account_id, DeviceSearch(sort=DeviceSort.NAME))
        assert [device.name for device in by_name if device.name in ("Дверь", "Насос №1")] == ["Дверь", "Насос №1"]


async def test_quotes_make_a_phrase_and_words_match_word_beginnings_first(world: StoredAccount) -> None:
    account_id = world.account.account_id
    async with world.uow.write() as tx:
        for name in ("Building B, tank A", "Old building  A", "Rebuilding A", "A building", "Pump-building A2"):
            await tx.devices.add(a_device(account_id, world.project.project_id, name=name))

        async def found(text: str, **search: Any) -> list[str]:
            wanted = DeviceSearch(words=DeviceSearch.words_of(text), **search)
            return [device.name for device in await tx.device_search.find(account_id, wanted)]

        assert await found('"Building A"') == ["Old building  A", "Pump-building A2", "Rebuilding A"]
        assert await found('"building a') == await found('"Building A"')  # while it is typed
        assert (await found("building"))[-1] == "Rebuilding A"
        assert (await found("building", sort=DeviceSort.CREATED))[2] == "Rebuilding A"
        assert await walked(world, tx, DeviceSearch(words=DeviceSearch.words_of("building"), limit=1)) == await found("building")
        assert await found('tank "building b"') == ["Building B, tank A"]
        assert await found('""') == await found("")


async def test_devices_are_counted_by_state(world: StoredAccount) -> None:
    account_id = world.account.account_id
    async with world.uow.write() as tx:
        await populate(world, tx)
        counts = await tx.device_search.count_by_state(account_id)
        assert (counts.total, counts.online, counts.on, counts.revoked) == (4, 1, 1, 1)
        states = {state: await tx.device_search.count(account_id, DeviceSearch(state=state)) for state in DeviceStateFilter}
        assert counts == DeviceCounts(4, **{state.value.lower(): count for state, count in states.items()})
        assert await tx.device_search.count_by_state(new_id("acc")) == DeviceCounts(0, 0, 0, 0, 0, 0, 0, 0)


async def test_set_aside_messages_of_the_devices_of_an_account_are_counted(world: StoredAccount) -> None:
    device = world.device
    letter = IngestDeadLetter(0, device.device_no, device.device_id, "telemetry", b"{}", NOW, "refused")
    async with world.uow.write() as tx:
        await tx.dead_letters.add_many([letter, letter, replace(letter, device_id=None)])
        assert (await tx.device_search.count_by_state(world.account.account_id)).dead_letters == 2
        assert (await tx.device_search.count_by_state(new_id("acc"))).dead_letters == 0


async def test_the_live_schedules_of_an_account_are_listed(world: StoredAccount) -> None:
    async with world.uow.write() as tx:
        second = await tx.devices.add(a_device(world.account.account_id, world.project.project_id))
        one = a_schedule(world, slot=3)
        two = a_schedule(world, device_id=second.device_id, device_no=second.device_no)
        for schedule in (one, two):
            await tx.schedules.add(schedule)
        listed = await tx.schedules.list_active_by_account(world.account.account_id)
        assert {each.schedule_id for each in listed} == {one.schedule_id, two.schedule_id}
        assert await tx.schedules.list_active_by_account(new_id("acc")) == []
