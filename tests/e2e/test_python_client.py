"""The Python client against the running program: commands, approvals, errors, the feed over a restart, and a real webhook delivery."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from latchboard_client import (
    UNSET,
    ApprovalRefusedError,
    AsyncFeed,
    AsyncLatchboard,
    CommandNotDoneError,
    Feed,
    ForbiddenError,
    InitialState,
    InvalidRequestError,
    Latchboard,
    LatchboardError,
    NotFoundError,
    RateLimitedError,
    TransportError,
    UnauthenticatedError,
    VerificationError,
    WaitTimeoutError,
    models,
    webhooks,
)
from latchboard_client.retries import RetryPolicy
from support.device import Device, create_device
from support.service import EMAIL, PASSWORD, ApiClient, Service
from support.waiting import TIMEOUT_S
from support.webhook_receiver import respond, webhook_receiver

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "client-libraries.md"


@asynccontextmanager
async def client_as_owner(service: Service, owner: ApiClient) -> AsyncIterator[AsyncLatchboard]:
    async with AsyncLatchboard(service.url, token=await service.token(owner)) as latchboard:
        yield latchboard


async def key_for(latchboard: AsyncLatchboard, device_id: str, commands: list[str], **grant: Any) -> str:
    made = await latchboard.create_key(name="Robot")
    await latchboard.create_grant(device_id, commands=commands, api_key_id=made.key_id, **grant)
    return made.key


async def test_management_with_typed_operations(service: Service, owner: ApiClient) -> None:
    async with AsyncLatchboard(service.url) as anyone:
        login = await anyone.login_user(email=EMAIL, password=PASSWORD)
        assert isinstance(login, models.LoginResponse)
        assert (login.user.role, login.user.email) == ("Owner", EMAIL)
    async with AsyncLatchboard(service.url, token=lambda: login.access_token) as latchboard:
        device_id = (await latchboard.register_device(name="Pump", board_type="ESP32", app_type="PUMP", tags=["a b"])).device_id
        device = await latchboard.get_device(device_id)
        assert (device.name, device.tags, device.last_seen) == ("Pump", ["a b"], None)
        assert datetime.now(UTC) - device.created_at < timedelta(minutes=5)
        expires_at = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
        key = await latchboard.create_key(name="Robot")
        made = await latchboard.create_grant(device_id, commands=["ON"], api_key_id=key.key_id, expires_at=expires_at)
        [grant] = await latchboard.list_grants(device_id)
        assert (grant.grant_id, grant.expires_at, grant.scope) == (made.grant_id, expires_at, "WRITE")
        await latchboard.update_grant(device_id, made.grant_id, rate_limit_per_minute=5)
        assert [one.expires_at for one in await latchboard.list_grants(device_id)] == [expires_at], "UNSET keeps a value"
        await latchboard.update_grant(device_id, made.grant_id, expires_at=None, rate_limit_per_minute=UNSET)
        [grant] = await latchboard.list_grants(device_id)
        assert (grant.expires_at, grant.rate_limit_per_minute) == (None, 5)
        condition = models.RuleConditionRequest(metric="temperature", comparator="silent", value=60)
        with pytest.raises(InvalidRequestError) as unknown:
            await latchboard.create_rule(
                device_id, name="Silent", conditions=[condition], action=models.RuleActionRequest(command="OFF")
            )
        assert unknown.value.code == "UNKNOWN_METRIC"


async def test_a_key_switches_and_every_refusal_is_an_error_of_its_own(service: Service, owner: ApiClient) -> None:
    pump = await create_device(owner)
    async with client_as_owner(service, owner) as latchboard:
        key = await key_for(latchboard, pump.device_id, ["ON", "STATUS"], rate_limit_per_minute=2)
    retries = RetryPolicy(longest_wait_s=1)

    def work() -> list[LatchboardError]:
        stranger = Latchboard(service.url, api_key="sk_live_wrong")
        with stranger, Latchboard(service.url, api_key=key, retries=retries) as robot:
            done = robot.run_command(pump.device_id, "ON", reason="The soil is dry", timeout_s=TIMEOUT_S)
            assert (done.status, done.cmd, done.source) == ("DONE", "ON", "apikey")
            [seen] = robot.list_devices()
            assert (seen.device_id, seen.relay_state) == (pump.device_id, True)
            calls = [
                lambda: robot.switch_off(pump.device_id),
                lambda: robot.get_execution("dev_00000000000000000000", done.execution_id),
                lambda: robot.send_command(pump.device_id, cmd="ON", wait_seconds=99),
                lambda: robot.list_keys(),
                lambda: [robot.switch_on(pump.device_id) for _ in range(3)],
                stranger.list_devices,
            ]
            return [error_of(call) for call in calls]

    async with pump.online(service):
        refusals = await asyncio.to_thread(work)
    codes = [(type(one), getattr(one, "code", None)) for one in refusals]
    assert codes == [
        (ForbiddenError, "COMMAND_NOT_GRANTED"),
        (NotFoundError, "NOT_FOUND"),
        (InvalidRequestError, "VALIDATION_ERROR"),
        (ForbiddenError, "SESSION_REQUIRED"),
        (RateLimitedError, "RATE_LIMITED"),
        (UnauthenticatedError, "UNAUTHENTICATED"),
    ]
    assert "waitSeconds" in str(refusals[2])
    assert 1 < refusals[4].retry_after_s <= 60  # type: ignore[attr-defined]


def error_of(call: Any) -> LatchboardError:
    with pytest.raises(LatchboardError) as refused:
        call()
    return refused.value


async def test_waiting_for_a_persons_decision(service: Service, owner: ApiClient) -> None:
    pump = await create_device(owner)
    await owner.post(f"{pump.path}/commands", {"name": "FLOOD", "label": "Flood", "requiresApproval": True}, expect=201)
    async with client_as_owner(service, owner) as person:
        key = await key_for(person, pump.device_id, ["FLOOD"])
        async with AsyncLatchboard(service.url, api_key=key) as robot, pump.online(service):
            feed = person.feed(types=["approval_requested"])
            assert isinstance(await anext(feed), InitialState)
            for decide, waits_for_s in ((person.approve_command, TIMEOUT_S), (person.deny_command, 0.0)):
                running = asyncio.create_task(run_flood(robot, pump, waits_for_s))
                asked = await next_event(feed)
                assert isinstance(asked, models.ApprovalRequestedEvent)
                await decide(pump.device_id, asked.approval_id, note="as agreed")
                ended = await running
            await feed.aclose()
            [denied, approved] = await person.list_device_approvals(pump.device_id)
    assert isinstance(ended, ApprovalRefusedError)
    assert (ended.approval_id, ended.status, ended.note) == (denied.approval_id, "DENIED", "as agreed")
    assert (approved.status, approved.reason) == ("APPROVED", "Frost")


async def run_flood(robot: AsyncLatchboard, pump: Device, server_waits_s: float) -> Any:
    """With the service waiting for the decision, or the client."""
    try:
        if server_waits_s:
            return await robot.run_command(pump.device_id, "FLOOD", reason="Frost", timeout_s=TIMEOUT_S)
        asked = await robot.send_command(pump.device_id, cmd="FLOOD", reason="Frost")
        assert isinstance(asked, models.ApprovalPendingResponse)
        return await robot.wait_for_approval(pump.device_id, asked.approval_id, timeout_s=TIMEOUT_S)
    except ApprovalRefusedError as refused:
        return refused


async def test_a_command_that_is_not_done_is_an_error(service: Service, owner: ApiClient) -> None:
    pump = await create_device(owner)
    async with client_as_owner(service, owner) as latchboard:
        with pytest.raises(CommandNotDoneError) as expired:
            await latchboard.run_command(pump.device_id, "ON", ttl_seconds=1, timeout_s=TIMEOUT_S)
        assert expired.value.status == "EXPIRED"
        with pytest.raises(WaitTimeoutError):
            await latchboard.run_command(pump.device_id, "ON", ttl_seconds=60, timeout_s=0.5)


class LosesFirstAnswer(httpx.AsyncBaseTransport):
    """The request arrives and is carried out; its first answer is lost."""

    def __init__(self) -> None:
        self.real = httpx.AsyncHTTPTransport()
        self.keys: list[str | None] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        answer = await self.real.handle_async_request(request)
        self.keys.append(request.headers.get("Idempotency-Key"))
        if len(self.keys) == 1:
            await answer.aread()
            raise httpx.ReadError("the line broke")
        return answer

    async def aclose(self) -> None:
        await self.real.aclose()


async def test_a_command_whose_answer_was_lost_runs_once(service: Service, owner: ApiClient) -> None:
    pump = await create_device(owner)
    token = await service.token(owner)
    lossy = LosesFirstAnswer()
    async with pump.online(service), httpx.AsyncClient(transport=lossy, timeout=TIMEOUT_S) as http:
        answer = await AsyncLatchboard(service.url, token=token, http=http).send_command(
            pump.device_id, cmd="ON", wait_seconds=10
        )
    assert isinstance(answer, models.CommandResultResponse)
    assert (len(lossy.keys), len(set(lossy.keys)), None in lossy.keys) == (2, 1, False)
    [execution] = (await owner.get(f"{pump.path}/executions"))["data"]
    assert execution["executionId"] == answer.execution_id


async def test_a_call_that_may_have_been_carried_out_and_cannot_be_repeated_is_not(service: Service, owner: ApiClient) -> None:
    pump = await create_device(owner)
    token = await service.token(owner)
    lossy = LosesFirstAnswer()
    async with httpx.AsyncClient(transport=lossy, timeout=TIMEOUT_S) as http:
        with pytest.raises(TransportError):
            await AsyncLatchboard(service.url, token=token, http=http).toggle_device(pump.device_id)
    assert len(lossy.keys) == 1
    assert (await owner.get(pump.path))["deviceStatus"] == "DISABLED"


async def test_the_async_feed_goes_on_over_a_kill_of_the_service(service: Service, owner: ApiClient) -> None:
    pump = await create_device(owner)
    async with client_as_owner(service, owner) as latchboard:
        async with latchboard.feed(types=["relay_changed"], device_id=pump.device_id) as feed:
            first = await next_event(feed)
            assert isinstance(first, InitialState)
            assert [one.device_id for one in first.devices] == [pump.device_id]
            for round_, relay in enumerate((True, False, True)):
                async with pump.online(service) as line:
                    await line.press_button(relay)
                if round_ != 1:
                    await service.kill_and_restart()
            relays = [await next_relay(feed) for _ in range(3)]
        assert relays == ["ON", "OFF", "ON"]


async def test_another_channel_than_the_relay(service: Service, owner: ApiClient) -> None:
    board = await create_device(owner)
    async with client_as_owner(service, owner) as latchboard, board.online(service) as line:
        await line.publish("hello", {"ch": ["RELAY", "COVER", "INPUT"], "names": ["Lamp", "Gate", "Button"]})
        key = await key_for(latchboard, board.device_id, ["OPEN"], channels=[2])
        async with AsyncLatchboard(service.url, api_key=key) as robot, robot.feed(device_id=board.device_id) as feed:
            first = await next_event(feed)
            assert [(one.channel, one.kind, one.name, one.state) for one in first.devices[0].channels] == [
                (1, "RELAY", "Lamp", None),
                (2, "COVER", "Gate", None),
                (3, "INPUT", "Button", None),
            ]
            done = await robot.run_command(board.device_id, "OPEN", channel=2, timeout_s=TIMEOUT_S)
            assert (done.status, done.channel) == ("DONE", 2)
            with pytest.raises(InvalidRequestError, match="no channel 4"):
                await robot.run_command(board.device_id, "OPEN", channel=4)
            await line.publish("state", {"ch": 2, "position": 100})
            await line.publish("state", {"ch": 3, "action": "SINGLE"})
            while not isinstance(opened := await next_event(feed), models.StateChangedEvent):
                pass
            assert (opened.channel, opened.name, opened.state["position"]) == (2, "Gate", 100)
            while not isinstance(pressed := await next_event(feed), models.InputChangedEvent):
                pass
            assert (pressed.channel, pressed.action) == (3, "SINGLE")


async def next_event(feed: AsyncFeed) -> Any:
    async with asyncio.timeout(TIMEOUT_S):
        return await anext(feed)


async def next_relay(feed: AsyncFeed) -> str:
    while not isinstance(event := await next_event(feed), models.RelayChangedEvent):
        assert isinstance(event, InitialState), event
    return event.relay


async def test_the_sync_feed_resumes_from_a_stored_cursor_after_a_restart(service: Service, owner: ApiClient) -> None:
    pump = await create_device(owner)
    token = await service.token(owner)

    def relays_after(cursor: str | None, count: int) -> tuple[list[str], str | None]:
        with Latchboard(service.url, token=token) as latchboard, latchboard.feed(device_id=pump.device_id, cursor=cursor) as feed:
            return list(take_relays(feed, count)), feed.cursor

    _, cursor = await asyncio.to_thread(relays_after, None, 0)
    assert cursor is None, "nothing was read, so nothing may be skipped"

    def first_cursor() -> str | None:
        with Latchboard(service.url, token=token) as latchboard, latchboard.feed() as feed:
            next(feed)
            return feed.cursor

    cursor = await asyncio.to_thread(first_cursor)
    async with pump.online(service) as line:
        await line.press_button(True)
        await line.press_button(False)
    await asyncio.to_thread(service.restart)
    missed, cursor = await asyncio.to_thread(relays_after, cursor, 1)
    rest, _ = await asyncio.to_thread(relays_after, cursor, 1)
    assert (missed, rest) == (["ON"], ["OFF"])


def take_relays(feed: Feed, count: int) -> Any:
    while count:
        if isinstance(event := next(feed), models.RelayChangedEvent):
            yield event.relay
            count -= 1


async def test_a_deleted_key_ends_the_feed_with_an_error(service: Service, owner: ApiClient) -> None:
    async with client_as_owner(service, owner) as latchboard:
        made = await latchboard.create_key(name="Watcher")
        async with AsyncLatchboard(service.url, api_key=made.key) as robot, robot.feed() as feed:
            assert isinstance(await next_event(feed), InitialState)
            await latchboard.delete_key(made.key_id)
            with pytest.raises(ForbiddenError, match="4003"):
                await next_event(feed)
            with pytest.raises(UnauthenticatedError):
                await next_event(robot.feed())
            with pytest.raises(InvalidRequestError, match="types"):
                await next_event(latchboard.feed(types=["no_such_type"]))


async def test_a_real_delivery_is_verified(service: Service, owner: ApiClient) -> None:
    pump = await create_device(owner)
    async with client_as_owner(service, owner) as latchboard, webhook_receiver(respond()) as receiver:
        made = await latchboard.create_key(name="Robot")
        await latchboard.create_grant(pump.device_id, commands=["*"], api_key_id=made.key_id)
        hook = await latchboard.create_webhook(key_id=made.key_id, url=receiver.url, types=["relay_changed"])
        async with pump.online(service) as line:
            await line.press_button(True)
            [request] = await receiver.wait_for(1)

    delivery = webhooks.verify(hook.secret, request.body, request.headers)
    assert isinstance(delivery.event, models.RelayChangedEvent)
    assert (delivery.event.type, delivery.event.relay, delivery.event.device_id) == ("relay_changed", "ON", pump.device_id)
    assert delivery.delivery_id == request.headers["x-service-delivery"]
    other_secret = hook.secret[:-8] + "AAAAAAA="
    old = request.headers | {"webhook-timestamp": str(int(request.headers["webhook-timestamp"]) - 301)}
    forged = [
        (hook.secret, request.body.replace(b'"ON"', b'"OFF"'), request.headers),
        (other_secret, request.body, request.headers),
        (hook.secret, request.body, old),
        (hook.secret, request.body, {}),
    ]
    for secret, body, headers in forged:
        with pytest.raises(VerificationError):
            webhooks.verify(secret, body, headers)
    receive = run_example("webhook")["receive"]
    assert receive(hook.secret, request.body, request.headers) == 204
    assert receive(hook.secret, request.body + b" ", request.headers) == 400


async def test_the_examples_of_the_page_work(service: Service, owner: ApiClient, capsys: pytest.CaptureFixture[str]) -> None:
    pump = await create_device(owner)
    async with client_as_owner(service, owner) as latchboard:
        key = await key_for(latchboard, pump.device_id, ["ON"])
    real = {"http://127.0.0.1:8080": service.url, "sk_live_…": key, "dev_…": pump.device_id}
    async with pump.online(service):
        await owner.wait_until(pump.path, lambda found: found["isOnline"])
        await asyncio.to_thread(run_example, "client", real)
    assert capsys.readouterr().out.startswith("Pump True")
    follow = run_example("feed")["follow"]

    def follow_until_the_key_is_deleted() -> None:
        with Latchboard(service.url, api_key=key) as robot, pytest.raises(ForbiddenError):
            follow(robot, None)

    following = asyncio.create_task(asyncio.to_thread(follow_until_the_key_is_deleted))
    async with pump.online(service) as line:
        await line.press_button(True)
        while f"{pump.device_id} ON device" not in capsys.readouterr().out:
            await line.press_button(False)
            await line.press_button(True)
    [robot_key] = [one["keyId"] for one in await owner.get("/keys") if key.startswith(one["prefix"])]
    await owner.delete(f"/keys/{robot_key}")
    await following


def run_example(name: str, replacements: dict[str, str] | None = None) -> dict[str, Any]:
    """Run a block of the page and return its names."""
    found = re.search(rf"^```python {name}\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert found is not None
    source = found[1]
    for placeholder, value in (replacements or {}).items():
        source = source.replace(placeholder, value)
    names: dict[str, Any] = {}
    exec(source, names)
    return names
