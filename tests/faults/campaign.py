"""Run faults against a service under work and print one table: fault, count, acknowledged, lost, doubled, wrong.

    python -m faults.campaign                    the short form, some minutes
    python -m faults.campaign --long             hours; docs/reference/reliability.md holds the table of such a run
    python -m faults.campaign --only kill --count 20 --database sqlite

Exit code 1 when anything was lost, doubled or wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from faults.cluster import Cluster
from faults.injections import FAULTS, POSTGRES, SQLITE, Fault, World
from faults.workload import Verdict, running
from support.service import Service


@dataclass(frozen=True)
class Row:
    fault: Fault
    database: str
    count: int
    verdict: Verdict
    seconds: float

    def cells(self) -> tuple[str, ...]:
        found = self.verdict
        numbers = (self.count, found.acknowledged, found.lost, found.doubled, found.wrong)
        return (self.fault.name, self.database, *(f"{number:,}" for number in numbers), f"{self.seconds:,.0f} s")


HEADER = ("Fault", "Database", "Count", "Acknowledged", "Lost", "Doubled", "Wrong", "Time")


async def campaign(fault: Fault, database: str, count: int, *, long: bool = False) -> Row:
    """`count` injections of one fault into a new service with a new database."""
    began = time.monotonic()
    cluster = await asyncio.to_thread(Cluster) if database == POSTGRES else None
    try:
        settings = {"LATCHBOARD_INGEST_LIMIT": 0}
        if cluster is not None:
            await asyncio.to_thread(cluster.start)
            settings["LATCHBOARD_DATABASE_URL"] = cluster.url  # type: ignore[assignment]
        with tempfile.TemporaryDirectory(prefix="latchboard-faults-") as folder:
            verdict = await _inject(fault, Service(Path(folder), **settings), cluster, count, long)
    finally:
        if cluster is not None:
            await asyncio.to_thread(cluster.remove)
    return Row(fault, database, count, verdict, time.monotonic() - began)


async def _inject(fault: Fault, service: Service, cluster: Cluster | None, count: int, long: bool) -> Verdict:
    with service:
        async with running(service) as workload:
            for turn in range(count):
                await fault.inject(World(workload, cluster, turn, long))
                await workload.progress()
            await workload.stop()
            return await workload.check()


def chosen(only: str | None, database: str | None) -> Iterator[tuple[Fault, str]]:
    for fault in FAULTS:
        for each in fault.databases:
            if (only is None or only.lower() in fault.name.lower()) and database in (None, each):
                yield fault, each


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="faults.campaign", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--long", action="store_true", help="as often and as long as the published table")
    parser.add_argument("--only", help="faults whose name contains this")
    parser.add_argument("--count", type=int, help="injections of each fault")
    parser.add_argument("--database", choices=[SQLITE, POSTGRES])
    asked = parser.parse_args()
    print("| " + " | ".join(HEADER) + " |\n" + "|---" * len(HEADER) + "|", flush=True)
    clean = True
    for fault, database in chosen(asked.only, asked.database):
        count = asked.count or (fault.long if asked.long else fault.short)
        row = asyncio.run(campaign(fault, database, count, long=asked.long))
        print("| " + " | ".join(row.cells()) + " |", flush=True)
        for note in row.verdict.notes[:20]:
            print(f"    {note}", file=sys.stderr, flush=True)
        clean = clean and row.verdict.is_clean
    sys.exit(0 if clean else 1)


if __name__ == "__main__":
    main()
