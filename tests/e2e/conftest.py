from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.service import Service
from support.story import Api, Hook, sign_in


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One running program for all tests of a file; each test brings its own devices."""
    running = Service(tmp_path_factory.mktemp("service"))
    try:
        yield running.start()
    finally:
        running.close()


@pytest.fixture(scope="module")
def owner(service: Service) -> Api:
    return sign_in(service)


@pytest.fixture
def own_service(tmp_path: Path) -> Iterator[Service]:
    """A program of the test's own, to be killed."""
    running = Service(tmp_path)
    try:
        yield running.start()
    finally:
        running.close()


@pytest.fixture
def hook() -> Iterator[Hook]:
    receiver = Hook()
    yield receiver
    receiver.close()
