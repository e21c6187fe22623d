"""The text output of a simulation: one progress line while it runs, and a summary at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from app.simulator.command_load import CommandLoadGenerator
from app.simulator.options import SimulationOptions

SimulationStats = Mapping[str, int]

FAULT_COUNTERS = ("silent", "slow", "duplicate", "late", "reconnect", "dirty", "storm")


def progress_line(now: SimulationStats, before: SimulationStats, count: int) -> str:
    """Rates cover the time between the two samples."""
    seconds = max(0.001, (now["elapsed_ms"] - before.get("elapsed_ms", 0)) / 1000)
    sent, acknowledged = ((now[name] - before.get(name, 0)) / seconds for name in ("sent", "confirmed"))
    return (
        f"{now['elapsed_ms'] / 1000:6.0f} s  {now['connected']:,}/{count:,} connected  {sent:,.0f} published/s  "
        f"{acknowledged:,.0f} acknowledged/s  p50 {format_ms(now['confirmation_p50_us'])}  p99 {format_ms(now['confirmation_p99_us'])}  "  # noqa: E501
        f"{now['answered']:,} commands answered  {count_faults(now):,} faults"
    )


def count_faults(stats: SimulationStats) -> int:
    return sum(stats[f"fault_{name}"] for name in FAULT_COUNTERS)


def summary_lines(
    options: SimulationOptions, stats: SimulationStats, max_connected: int, load: CommandLoadGenerator | None
) -> Sequence[str]:
    seconds = max(0.001, stats["elapsed_ms"] / 1000)
    lines = [
        (
            "connected",
            f"{max_connected:,} at most at once; {stats['connects']:,} connects, {stats['refused']:,} refused, "
            f"{stats['failed']:,} failed, {stats['lost']:,} lost",
        ),
        ("published", f"{stats['sent']:,} messages, {stats['sent'] / seconds:,.0f}/s"),
    ]
    if options.qos:
        missing = stats["sent"] - stats["confirmed"]
        lines += [
            (
                "acknowledged",
                f"{stats['confirmed']:,}, {missing:,} not ({stats['abandoned']:,} of them because the connection ended)",
            ),
            ("to PUBACK", _latency_text(stats, "confirmation")),
        ]
    lines += [
        ("to CONNACK", _latency_text(stats, "connect")),
        (
            "commands",
            f"{stats['commands']:,} received ({stats['repeats']:,} repeated), {stats['answered']:,} answered, "
            f"{stats['expired']:,} after their deadline",
        ),
    ]
    if load is not None:
        outcomes = ", ".join(f"{count:,} {name}" for name, count in load.outcomes.most_common()) or "none"
        lines.append(("outcomes", outcomes))
        times = (f"p{share:.0%} {load.latency_quantile_s(share) * 1000:,.1f} ms".replace("%", "") for share in (0.5, 0.9, 0.99))
        lines.append(("to DONE", ", ".join(times)))
    injected = ", ".join(f"{name} {stats[f'fault_{name}']:,}" for name in FAULT_COUNTERS if stats[f"fault_{name}"])
    lines.append(("faults", injected or "none"))
    return [f"{name:13} {text}" for name, text in lines]


def _latency_text(stats: SimulationStats, what: str) -> str:
    return ", ".join(f"{name} {format_ms(stats[f'{what}_{name}_us'])}" for name in ("p50", "p90", "p99", "max"))


def format_ms(microseconds: int) -> str:
    return f"{microseconds / 1000:,.1f} ms"
