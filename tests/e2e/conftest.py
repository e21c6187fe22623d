"""One running program for each test module; its log is shown with each failure."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterator
from typing import Any

import pytest

from support.service import RUNNING_SERVICES, ApiClient, Service


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service(tmp_path_factory.mktemp("service"), LATCHBOARD_INGEST_LIMIT=0) as service:
        yield service


@pytest.fixture
def service(running: Service) -> Service:
    """The module's service; started again if the previous test left it stopped."""
    if not running.is_running:
        running.start()
    return running


@pytest.fixture
async def owner(service: Service) -> AsyncIterator[ApiClient]:
    async with service.api() as api:
        yield api


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    report = yield
    if report.failed:
        report.sections += [(f"log of the service on port {each.port}", each.log(4_000)) for each in RUNNING_SERVICES]
    return report
