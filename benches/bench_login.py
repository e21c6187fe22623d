"""The cost of a login, and whether its time reveals which users exist: a wrong password of a known user, an unknown email, and a
right password, in turn, one at a time, over HTTP. A trusted proxy names a new client address each time, so that no login is
throttled."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.service import EMAIL, PASSWORD, Service

TURNS = 40
PEOPLE = 8
"""An email is throttled after twenty failures, so several emails share them."""


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with Service(tmp_path, LATCHBOARD_TRUSTED_PROXIES="127.0.0.1") as made:
        yield made


def bench_a_login(benchmark: Any, service: Service) -> None:
    with httpx.Client(base_url=f"{service.url}/api/v1", timeout=30) as api:
        token = api.post("/auth/login", json={"email": EMAIL, "password": PASSWORD}).json()["accessToken"]
        for number in range(PEOPLE):
            body = {"email": f"member{number}@example.com", "name": "M", "role": "Viewer", "password": PASSWORD}
            assert api.post("/members", json=body, headers={"Authorization": f"Bearer {token}"}).status_code == 201
        took: dict[str, list[float]] = {"known": [], "unknown": [], "right": []}
        turns = iter(range(10_000))

        def turn() -> None:
            number = next(turns)
            for place, (who, email, password) in enumerate(
                (
                    ("known", f"member{number % PEOPLE}@example.com", "wrong password"),
                    ("unknown", f"nobody{number % PEOPLE}@example.com", "wrong password"),
                    ("right", f"member{number % PEOPLE}@example.com", PASSWORD),
                )
            ):
                headers = {"X-Forwarded-For": f"198.18.{number}.{place}"}
                began = time.perf_counter()
                answer = api.post("/auth/login", json={"email": email, "password": password}, headers=headers)
                took[who].append(time.perf_counter() - began)
                assert answer.status_code == (200 if who == "right" else 401), answer.text

        benchmark.pedantic(turn, rounds=TURNS)
    for who, times in took.items():
        quarters = statistics.quantiles(times, n=4)
        benchmark.extra_info[who] = [round(1000 * one, 1) for one in quarters]
    print(f"\n  {benchmark.name}: quartiles in ms {benchmark.extra_info}")
