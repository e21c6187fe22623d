"""`/metrics` follows the conventions of Prometheus: https://prometheus.io/docs/practices/naming."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from adapters.engine import _native
from app.runtime.metrics import BrokerMetricsCollector
from app.wiring.metrics import register_homeassistant_metrics
from domain.commands.model import ExecutionStatus
from support.in_process_app import in_process_app
from support.waiting import TIMEOUT_S

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
REQUIRED = "LATCHBOARD_REQUIRE_PROMTOOL"
NAME = re.compile(r"(latchboard|process|python)(_[a-z0-9]+)+")
OTHER_UNITS = {"ms", "us", "ns", "milliseconds", "microseconds", "minutes", "hours", "days", "kb", "mb", "kilobytes", "percent"}


@pytest.fixture
async def page(tmp_path: Path) -> AsyncIterator[str]:
    """The page of a whole program, with the embedded broker, Home Assistant and one fault of a device."""
    async with in_process_app(tmp_path) as program:
        metrics = program.program.metrics
        metrics.register_collector(BrokerMetricsCollector(read=_native.Broker().stats))
        register_homeassistant_metrics(metrics, lambda: defaultdict(float))
        program.program.workers.fault_log.count(1, "BAD_JSON", 1)
        yield metrics.render().decode()


def families(page: str) -> list[Metric]:
    return list(text_string_to_metric_families(page))


async def test_every_metric_has_a_type_a_help_text_and_a_name_of_plain_words(page: str) -> None:
    names = re.findall(r"^# TYPE (\S+)", page, re.M)
    assert len(names) == len(set(names)) > 40
    assert set(names) == set(re.findall(r"^# HELP (\S+) \S+", page, re.M))
    assert not [name for name in names if not NAME.fullmatch(name)]
    assert not [one.name for one in families(page) if one.type not in ("counter", "gauge", "histogram")]


async def test_counters_and_only_counters_end_in_total(page: str) -> None:
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)", page, re.M))
    assert not [name for name, kind in types.items() if name.endswith("_total") != (kind == "counter")]


async def test_a_metric_has_one_base_unit_at_the_end_of_its_name(page: str) -> None:
    for family in families(page):
        words = family.name.removesuffix("_total").split("_")
        assert not set(words) & OTHER_UNITS, family.name
        for unit in ("seconds", "bytes"):
            assert unit not in words[:-1], family.name


async def test_no_label_is_named_name_and_no_sample_lacks_its_labels(page: str) -> None:
    for family in families(page):
        keys = {frozenset(sample.labels) - {"le"} for sample in family.samples}
        assert len(keys) <= 1, family.name
        assert all("name" not in key for key in keys), family.name


async def test_process_build_commands_approvals_and_queue_ages_are_there(page: str) -> None:
    names = {family.name for family in families(page)}
    assert {
        "process_cpu_seconds",
        "process_resident_memory_bytes",
        "latchboard_build_info",
        "latchboard_commands_finished",
        "latchboard_command_seconds",
        "latchboard_approvals_waiting",
        "latchboard_dispatch_queue_age_seconds",
        "latchboard_webhook_queue_age_seconds",
        "latchboard_ingest_batch_age_seconds",
    } <= names
    finished = next(family for family in families(page) if family.name == "latchboard_commands_finished")
    assert {sample.labels["status"] for sample in finished.samples} == {one.value for one in ExecutionStatus if one.is_final}


async def test_the_documentation_lists_every_metric_of_ours(page: str) -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "how-to" / "operate.md").read_text(encoding="utf-8")
    names = re.findall(r"^# TYPE (latchboard_\S+)", page, re.M)
    assert not [name for name in names if f"`{name}" not in text]


def promtool(*arguments: str, given: str | None = None) -> tuple[int, str]:
    """Exit code and output."""
    program = shutil.which("promtool")
    if program is None and not os.environ.get(REQUIRED):
        pytest.skip(f"promtool is not installed (Debian package prometheus); set {REQUIRED}=1 to make this a failure")
    assert program is not None, f"promtool is not installed and {REQUIRED} is set"
    result = subprocess.run([program, *arguments], input=given, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    return result.returncode, result.stdout + result.stderr


async def test_promtool_finds_no_fault(page: str) -> None:
    assert promtool("check", "metrics", given=page) == (0, "")


def test_the_alert_rules_are_valid_and_fire_when_they_should() -> None:
    code, said = promtool("test", "rules", str(DEPLOY / "prometheus" / "alerts.test.yml"))
    assert code == 0, said


@pytest.mark.parametrize("file", ["prometheus/alerts.yml", "grafana/latchboard.json"])
async def test_the_alerts_and_the_dashboard_use_metrics_and_labels_that_exist(page: str, file: str) -> None:
    known = re.findall(r"^# TYPE (\S+)", page, re.M)
    labels_of = {sample.name: set(sample.labels) for family in families(page) for sample in family.samples}
    used = re.findall(r"\b((?:latchboard|process)_[a-z_]+)(?:\{([^}]*)\})?", (DEPLOY / file).read_text(encoding="utf-8"))
    for name, matchers in used:
        assert name.removesuffix("_bucket") in known, name
        labels = set(re.findall(r"(\w+)=", matchers)) - {"instance", "job"}
        assert labels <= labels_of.get(name, labels), (name, labels)
    assert len(used) > 10
