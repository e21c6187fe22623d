"""The client: one method for each operation, the feed, and waiting for approvals and devices."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, TypeVar

from latchboard_client.aio.feed import WATCHDOG_S, AsyncFeed
from latchboard_client.aio.operations import AsyncOperations
from latchboard_client.codec import UNSET, Unset
from latchboard_client.errors import ApprovalRefusedError, CommandNotDoneError, WaitTimeoutError
from latchboard_client.models import ApprovalPendingResponse, ApprovalResponse, ExecutionResponse

OPEN_STATES: Final = {"QUEUED", "SENT", "ACKED"}
FIRST_POLL_S = 0.25
SLOWEST_POLL_S = 5.0
LONGEST_SERVER_WAIT_S = 30.0
Polled = TypeVar("Polled")


class AsyncLatchboard(AsyncOperations):
    """Use it as a context manager, or call `aclose` at the end."""

    def feed(
        self,
        *,
        types: Iterable[str] = (),
        device_id: str | None = None,
        cursor: str | None = None,
        watchdog_s: float = WATCHDOG_S,
    ) -> AsyncFeed:
        """The live feed, of all event types by default. `cursor`: resume after the event that it was stored with."""
        chosen = {"types": ",".join(types), "deviceId": device_id}
        query = {name: value for name, value in chosen.items() if value}
        return AsyncFeed(self.url.replace("http", "ws", 1) + "/api/v1/ws", query, cursor, self.credentials, watchdog_s)

    async def run_command(
        self,
        device_id: str,
        cmd: str,
        *,
        channel: int | Unset = UNSET,
        params: Any = UNSET,
        reason: str | Unset = UNSET,
        ttl_seconds: int | Unset = UNSET,
        timeout_s: float = 60.0,
        idempotency_key: str | Unset = UNSET,
    ) -> ExecutionResponse:
        """Send a command, wait for its approval if it needs one, and for the device; returns the execution, which is DONE.
        `channel`: 1, the relay, without it.

        Raises ApprovalRefusedError, CommandNotDoneError, WaitTimeoutError, ApiError."""
        deadline = time.monotonic() + timeout_s
        answer = await self.send_command(
            device_id,
            cmd=cmd,
            channel=channel,
            params=params,
            reason=reason,
            ttl_seconds=ttl_seconds,
            wait_seconds=min(timeout_s, LONGEST_SERVER_WAIT_S),
            idempotency_key=idempotency_key,
        )
        if isinstance(answer, ApprovalPendingResponse):
            approval = await self.wait_for_approval(device_id, answer.approval_id, timeout_s=deadline - time.monotonic())
            execution_id = str(approval.execution_id)
        else:
            execution_id = answer.execution_id
        execution = await self.wait_for_execution(device_id, execution_id, timeout_s=deadline - time.monotonic())
        if execution.status != "DONE":
            raise CommandNotDoneError(execution.execution_id, execution.status, execution.result)
        return execution

    async def wait_for_approval(self, device_id: str, approval_id: str, *, timeout_s: float) -> ApprovalResponse:
        """Wait until the approval is granted. Raises ApprovalRefusedError, WaitTimeoutError, ApiError."""
        approval = await _poll(
            lambda: self.get_approval(device_id, approval_id), lambda found: found.status != "PENDING", timeout_s, approval_id
        )
        if approval.status != "APPROVED":
            raise ApprovalRefusedError(approval.approval_id, approval.status, approval.note)
        return approval

    async def wait_for_execution(self, device_id: str, execution_id: str, *, timeout_s: float) -> ExecutionResponse:
        """Wait until the execution has ended, well or not. Raises WaitTimeoutError, ApiError."""
        return await _poll(
            lambda: self.get_execution(device_id, execution_id),
            lambda found: found.status not in OPEN_STATES,
            timeout_s,
            execution_id,
        )


async def _poll(read: Callable[[], Awaitable[Polled]], is_over: Callable[[Polled], bool], timeout_s: float, what: str) -> Polled:
    deadline, pause = time.monotonic() + timeout_s, FIRST_POLL_S
    while not is_over(found := await read()):
        left = deadline - time.monotonic()
        if left <= 0:
            raise WaitTimeoutError(f"{what} is still open after {timeout_s:.0f} s. Wait longer, or read it again later.")
        await asyncio.sleep(min(pause, left))
        pause = min(pause * 1.5, SLOWEST_POLL_S)
    return found
