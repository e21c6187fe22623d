"""Calls the service for `latchboard plan`, `apply` and `export`."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

RESPONSE_TIMEOUT_S = 60.0
RETRY_FOR_S = 60.0
"""How long a service that does not answer, because it starts again, is asked again."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 5.0
_RETRIED = frozenset({429, 502, 503, 504})


class FleetFileApiError(Exception):
    """The service refused, or did not answer. `details`: (place in the request, message)."""

    def __init__(self, message: str, code: str = "", details: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.details = details


@dataclass(frozen=True, slots=True)
class FleetFileApiClient:
    http: httpx.Client

    def export(self, project: str | None) -> Any:
        return self._call("GET", "/fleet", params={} if project is None else {"project": project})

    def plan(self, body: Mapping[str, Any]) -> Any:
        return self._call("POST", "/fleet/plan", json=body)

    def apply(self, body: Mapping[str, Any]) -> Any:
        """Once, whatever happens to the connection or the service: each attempt has the same `Idempotency-Key`."""
        return self._call("POST", "/fleet/apply", json=body, headers={"Idempotency-Key": str(uuid.uuid4())})

    def _call(self, method: str, path: str, **request: Any) -> Any:
        """Raises FleetFileApiError."""
        until, pause = time.monotonic() + RETRY_FOR_S, FIRST_PAUSE_S
        while True:
            answer = self._send(method, path, **request)
            if isinstance(answer, httpx.Response) and not _asks_for_retry(answer):
                return _content(answer)
            if time.monotonic() + pause > until:
                raise _no_answer(self.http.base_url, answer)
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)

    def _send(self, method: str, path: str, **request: Any) -> httpx.Response | httpx.HTTPError:
        try:
            return self.http.request(method, path, **request)
        except httpx.HTTPError as error:
            return error


@contextmanager
def fleet_client(url: str, token: str) -> Iterator[FleetFileApiClient]:
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=f"{url.rstrip('/')}/api/v1", headers=headers, timeout=RESPONSE_TIMEOUT_S) as http:
        yield FleetFileApiClient(http)


def _asks_for_retry(answer: httpx.Response) -> bool:
    return answer.status_code in _RETRIED or (answer.status_code == 409 and "IDEMPOTENCY_IN_PROGRESS" in answer.text)


def _content(answer: httpx.Response) -> Any:
    try:
        content = answer.json()
    except ValueError:
        message = f"{answer.request.url} does not return JSON ({answer.status_code}). Is it the URL of Latchboard?"
        raise FleetFileApiError(message) from None
    if answer.is_success:
        return content
    details = tuple((each["field"], each["message"]) for each in content.get("details") or ())
    raise FleetFileApiError(f"{content.get('error')}: {content.get('message')}", str(content.get("error")), details)


def _no_answer(url: httpx.URL, last: httpx.Response | httpx.HTTPError) -> FleetFileApiError:
    if isinstance(last, httpx.Response):
        return FleetFileApiError(f"{url} answers {last.status_code} for {RETRY_FOR_S:.0f} seconds: {last.text[:200]}")
    return FleetFileApiError(f"{url} does not answer: {last or type(last).__name__}. Is the service running?")
