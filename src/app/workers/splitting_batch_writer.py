"""Stores evaluated batches, retries while the database does not answer, and finds the parts that the database refuses.

The law: one message that cannot be stored must not hold up the fleet. A refused batch is halved until the refused parts are
found, so one refused part among thousands costs some 25 transactions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

import structlog

from domain.ingest.device_messages import AfterCommitDeviceWorkList
from domain.ingest.pipeline import EvaluatedBatch, IngestPipeline, RefusedBatchPart
from domain.kernel.backoff import RETRY_BACKOFF
from domain.kernel.errors import Unavailable
from domain.partitions.model import LeaseLostError, LogAdvanceAlreadyCommittedError, PartitionLostError

Result = TypeVar("Result")

log = structlog.get_logger("ingest")


class SplittingBatchWriter:
    def __init__(self, pipeline: IngestPipeline, require_permission: Callable[[], None] = lambda: None) -> None:
        """`require_permission` is called before each attempt; what it raises ends the attempts. It may raise LeaseLostError."""
        self._pipeline = pipeline
        self._require_permission = require_permission
        self.retries = 0

    async def store(self, evaluated: EvaluatedBatch) -> tuple[AfterCommitDeviceWorkList, Sequence[RefusedBatchPart]]:
        """Store the batch in one transaction, or the parts that the database accepts when it refuses the whole. Raises
        PartitionLostError, LeaseLostError."""
        try:
            return await self._store_once(evaluated), ()
        except (PartitionLostError, LeaseLostError):
            raise
        except Exception as error:
            parts = list(evaluated.split())
            log.warning("the database refuses a batch; storing its parts", parts=len(parts), error=repr(error))
        follow_ups, refused = AfterCommitDeviceWorkList(), list[RefusedBatchPart]()
        await self._store_parts(parts, follow_ups, refused)
        return follow_ups, refused

    async def assign_names(self, names: Sequence[str]) -> Mapping[str, Exception]:
        """Get numbers for new metric names. Returns those that the database refuses, each with its error."""
        try:
            await self.retry_while_unavailable(lambda: self._pipeline.assign_names(names))
            return {}
        except Exception as error:
            if len(names) == 1:
                return {names[0]: error}
        middle = len(names) // 2
        return {**await self.assign_names(names[:middle]), **await self.assign_names(names[middle:])}

    async def _store_once(self, evaluated: EvaluatedBatch) -> AfterCommitDeviceWorkList:
        try:
            return await self.retry_while_unavailable(lambda: self._pipeline.store(evaluated))
        except LogAdvanceAlreadyCommittedError:
            return AfterCommitDeviceWorkList()  # the answer to the commit was lost, and this was its repetition

    async def _store_parts(
        self, parts: Sequence[EvaluatedBatch], follow_ups: AfterCommitDeviceWorkList, refused: list[RefusedBatchPart]
    ) -> None:
        joined = EvaluatedBatch.join(parts)
        try:
            follow_ups.extend(await self._store_once(joined))
            return
        except (PartitionLostError, LeaseLostError):
            raise
        except Exception as error:
            if len(parts) == 1:
                refused.append(RefusedBatchPart(joined, error))
                return
        middle = len(parts) // 2
        await self._store_parts(parts[:middle], follow_ups, refused)
        await self._store_parts(parts[middle:], follow_ups, refused)

    async def retry_while_unavailable(self, work: Callable[[], Awaitable[Result]]) -> Result:
        """Retry until the database answers. The messages of the devices stay unacknowledged meanwhile."""
        attempt = 0
        while True:
            self._require_permission()
            try:
                return await work()
            except Unavailable as error:
                attempt += 1
                pause_s = RETRY_BACKOFF.pause_s(attempt)
                self.retries += 1
                log.warning("the database does not answer; telemetry waits", error=str(error), attempt=attempt, pause_s=pause_s)
                await asyncio.sleep(pause_s)
