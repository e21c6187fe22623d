"""The ingest worker of an owner: stores what the log of its partitions contains, and advances their positions with it."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import structlog

from app.workers.ingest import IngestWorker
from app.workers.owned_partition_log_reader import PartitionInboundBatch
from domain.devices.link import InboundBatch
from domain.ingest.device_messages import DecodedBatch
from domain.ingest.pipeline import AssignNames, EvaluatedBatch, IngestPipeline
from domain.partitions.model import PartitionLostError

log = structlog.get_logger("partitions")


class FencedIngestPipeline(IngestPipeline):
    """Its batches prove their ownership, and advance their positions, in the transaction that stores them."""

    async def evaluate(self, batch: InboundBatch, decoded: DecodedBatch, assign_names: AssignNames) -> EvaluatedBatch:
        owned = cast("PartitionInboundBatch", batch).still_owned()
        evaluated = await super().evaluate(owned, decoded, assign_names)
        return replace(evaluated, progress=owned.progress)


class FencedIngestWorker(IngestWorker):
    name = "partition_ingest"

    async def _process_batch(self, batch: InboundBatch) -> None:
        try:
            await super()._process_batch(batch)
        except PartitionLostError as error:
            log.info("another instance owns a partition now; what it has not stored is stored there", error=error.message)
            batch.nack()
