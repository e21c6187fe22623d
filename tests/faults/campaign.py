"""Run faults against a service under work and print one table: fault, count, acknowledged, lost, doubled, wrong.

    python -m faults.campaign                    the short form, some minutes
    python -m faults.campaign --long             hours; docs/reference/reliability.md holds the table of such a run
    python -m faults.campaign --only kill --count 20 --setup SQLite

Exit code 1 when anything was lost, doubled or wrong that is promised not to be.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from faults.checks import Check, Verdict
from faults.hand_over import summary
from faults.injections import FAULTS, Fault, World
from faults.setups import CLUSTERS, Installation, Setup, installation
from faults.workload import running

KEPT = Path("target/faults")
METERS = 3


@dataclass(frozen=True)
class Row:
    fault: Fault
    setup: Setup
    count: int
    verdict: Verdict
    seconds: float

    def cells(self) -> tuple[str, ...]:
        found = self.verdict
        numbers = (self.count, found.acknowledged, found.lost, found.doubled, found.wrong)
        return (self.fault.name, self.setup, *(f"{number:,}" for number in numbers), f"{self.seconds:,.0f} s")


HEADER = ("Fault", "Setup", "Count", "Acknowledged", "Lost", "Doubled", "Wrong", "Time")


async def campaign(fault: Fault, setup: Setup, count: int, *, long: bool = False) -> Row:
    """`count` injections of one fault, each `per_service` into a new service with a new database."""
    began, verdict, left = time.monotonic(), Verdict(), count
    while left:
        batch = min(left, fault.per_service)
        with tempfile.TemporaryDirectory(prefix="latchboard-faults-") as folder:
            verdict.add(await _inject(fault, setup, Path(folder), batch, long))
        left -= batch
        if count > fault.per_service:
            row = Row(fault, setup, count - left, verdict, time.monotonic() - began)
            print("    " + " | ".join(row.cells()), *verdict.notes, sep="\n    ", file=sys.stderr, flush=True)
    return Row(fault, setup, count, verdict, time.monotonic() - began)


async def _inject(fault: Fault, setup: Setup, folder: Path, count: int, long: bool) -> Verdict:
    async with installation(setup, folder) as installed:
        with installed.service:
            async with running(installed.service, meters=METERS if setup in CLUSTERS else 0) as workload:
                world = World(workload, installed, long)
                for world.turn in range(count):
                    await fault.inject(world)
                    await workload.progress(random.randint(20, 300))  # the next fault comes at another moment
                await workload.stop()
                await workload.sign_in()
                found = await Check(workload).run()
                if installed.instances is not None:
                    found.hand_overs = installed.instances.hand_overs
        if not found.is_clean:
            await asyncio.to_thread(_keep_evidence, found, installed, folder)
        return found


def _keep_evidence(found: Verdict, installed: Installation, folder: Path) -> None:
    """Where something was lost, doubled or wrong, the log and the database stay, so that its cause can be found."""
    if installed.cluster is not None:
        installed.cluster.dump(folder / "database.sql")
    kept = KEPT / f"{datetime.now():%Y%m%d-%H%M%S}"
    with contextlib.suppress(shutil.Error):  # a socket, for example, after everything else has been copied
        shutil.copytree(folder, kept)
    found.notes.append(f"the log and the database are in {kept}")


def chosen(only: str | None, setup: str | None) -> Iterator[tuple[Fault, Setup]]:
    for fault in FAULTS:
        for each in fault.setups:
            if (only is None or only.lower() in fault.name.lower()) and setup in (None, each):
                yield fault, each


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="faults.campaign", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--long", action="store_true", help="as often and as long as the published table")
    parser.add_argument("--only", help="faults whose name contains this")
    parser.add_argument("--count", type=int, help="injections of each fault")
    parser.add_argument("--setup", choices=list(Setup))
    asked = parser.parse_args()
    print("| " + " | ".join(HEADER) + " |\n" + "|---" * len(HEADER) + "|", flush=True)
    clean = True
    for fault, setup in chosen(asked.only, asked.setup):
        if reason := setup.missing():
            print(f"    {fault.name} ({setup}) is left out: {reason}", file=sys.stderr, flush=True)
            continue
        count = asked.count or (fault.long if asked.long else fault.short)
        row = asyncio.run(campaign(fault, setup, count, long=asked.long))
        print("| " + " | ".join(row.cells()) + " |", flush=True)
        told = f"{row.verdict.deliveries:,} webhook deliveries, {row.verdict.waiting:,} of them PENDING when the rest was checked"
        if row.verdict.hand_overs:
            told += f"; {row.verdict.edges} firings of rules; {summary(row.verdict.hand_overs)}"
        for note in (told, *row.verdict.notes[:20]):
            print(f"    {note}", file=sys.stderr, flush=True)
        clean = clean and (row.verdict.is_clean or not fault.is_promised)
    sys.exit(0 if clean else 1)


if __name__ == "__main__":
    main()
