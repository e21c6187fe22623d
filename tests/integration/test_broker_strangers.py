"""An address whose MQTT connections all fail is held back for a while; one with a device, and one that only looks, are not."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from adapters.mqtt.embedded import UnauthenticatedConnectionLimits
from support.broker import BrokerDevice, BrokerWorld, broker, connect_packet
from support.waiting import TIMEOUT_S

NOBODY_IS_TRUSTED = UnauthenticatedConnectionLimits(ban_after=3, max_ban_s=600.0, trusted_networks=[])
STRANGER, PLANT, HEALTH_CHECK = "127.0.0.2", "127.0.0.3", "127.0.0.4"


ACCEPTED, WRONG_PASSWORD = b"\x20\x02\x00\x00", b"\x20\x02\x00\x04"


async def fail_until_banned(world: BrokerWorld, wrong: BrokerDevice) -> None:
    """With a ban that lasts for some seconds."""
    for _ in range(5):
        assert await attempt(world, wrong, STRANGER) == WRONG_PASSWORD
    await world.wait_for_stat("banned_addresses", 1)


async def attempt(world: BrokerWorld, device: BrokerDevice, source: str) -> bytes:
    """The first bytes of the answer to a CONNECT; none when the socket is closed without a word."""
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port, local_addr=(source, 0))
    try:
        writer.write(connect_packet(device))
        async with asyncio.timeout(TIMEOUT_S):
            return await reader.read(4)
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def test_a_device_comes_in_from_an_address_at_which_all_others_have_failed_and_ends_its_ban() -> None:
    async with broker(pending=NOBODY_IS_TRUSTED) as world:
        device, other = await world.device(), await world.device()
        await fail_until_banned(world, replace(other, password="x" * 32))
        assert await attempt(world, device, STRANGER) == ACCEPTED
        await world.wait_for_stat("connects", 1)
        assert world.link.stats()["banned_addresses"] == 0
        for _ in range(5):
            assert await attempt(world, replace(other, password="x" * 32), STRANGER) == WRONG_PASSWORD
        assert world.link.stats()["banned_addresses"] == 0, "it has had a device"


async def test_who_only_guesses_passwords_has_few_places_and_waits_for_its_answers_while_others_come_in() -> None:
    async with broker(pending=NOBODY_IS_TRUSTED) as world:
        device = await world.device()
        guess = replace(device, password="x" * 32)
        await fail_until_banned(world, guess)
        guesses = [asyncio.create_task(attempt(world, guess, STRANGER)) for _ in range(200)]
        await world.wait_for_stat("refused_banned", 100)
        assert await attempt(world, device, PLANT) == ACCEPTED
        answers = await asyncio.gather(*guesses)
        assert set(answers) <= {b"", WRONG_PASSWORD}
        assert answers.count(WRONG_PASSWORD) <= 100


async def test_behind_the_address_of_a_device_another_one_may_fail_and_a_health_check_may_look() -> None:
    async with broker(pending=NOBODY_IS_TRUSTED) as world:
        device, other = await world.device(), await world.device()
        reader, writer = await asyncio.open_connection("127.0.0.1", world.port, local_addr=(PLANT, 0))
        writer.write(connect_packet(device))
        await reader.read(4)
        for _ in range(6):
            assert await attempt(world, replace(other, password="x" * 32), PLANT) != b""
            _, probe = await asyncio.open_connection("127.0.0.1", world.port, local_addr=(HEALTH_CHECK, 0))
            probe.close()
            await probe.wait_closed()
        assert await attempt(world, other, HEALTH_CHECK) != b""
        assert world.link.stats()["refused_banned"] == 0
        writer.close()
