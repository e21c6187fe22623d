"""HTTP to the identity provider: bounded in time, size and number, without redirects, and guarded.

The operator named the issuer, so its host may have a private address. The provider's document names more hosts; those must be
public, or a provider in wrong hands could make the service call its own network.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import httpcore
import httpx
import msgspec
import structlog

from domain.kernel.errors import Unavailable

DEADLINE_S = 10.0
"""For a whole exchange, with the wait for a free place."""
MAX_RESPONSE_BYTES = 512 * 1024
MAX_CONCURRENT = 8
LOOPBACK = ("localhost", "127.0.0.1", "[::1]", "::1")

log = structlog.get_logger("oidc")


class OidcProviderHttpClient:
    """`own`: transport to the issuer's host; `others`: to all others. Close it."""

    def __init__(self, issuer: str, *, own: httpx.AsyncBaseTransport, others: httpx.AsyncBaseTransport) -> None:
        parts = urlsplit(issuer)
        self._issuer_host = parts.hostname or ""
        self._may_be_plain = parts.scheme == "http" and self._issuer_host in LOOPBACK
        self._places = asyncio.Semaphore(MAX_CONCURRENT)
        self._client = httpx.AsyncClient(
            transport=others,
            mounts={f"all://{self._issuer_host}": own},
            timeout=None,  # noqa: S113 - one deadline covers the whole exchange
            trust_env=False,
            follow_redirects=False,
            headers={"Accept": "application/json", "Accept-Encoding": "identity", "Connection": "close"},
        )

    async def close(self) -> None:
        await self._client.aclose()

    async def get(self, url: str, headers: Mapping[str, str] | None = None) -> dict[str, Any]:
        """The JSON object behind a URL of the provider. Raises Unavailable `PROVIDER_UNAVAILABLE`."""
        status, content = await self._exchange("GET", url, headers=headers or {})
        if status != 200:
            raise unavailable_error(f"{_host(url)} responded with status {status}")
        return content

    async def post(self, url: str, form: Mapping[str, str], headers: Mapping[str, str]) -> tuple[int, dict[str, Any]]:
        """Status below 500 and JSON object. Raises Unavailable `PROVIDER_UNAVAILABLE`."""
        return await self._exchange("POST", url, headers=headers, form=form)

    async def _exchange(
        self, method: str, url: str, *, headers: Mapping[str, str], form: Mapping[str, str] | None = None
    ) -> tuple[int, dict[str, Any]]:
        self.check_url(url)
        try:
            async with (
                asyncio.timeout(DEADLINE_S),
                self._places,
                self._client.stream(method, url, headers=dict(headers), data=form) as response,
            ):
                body = await _read(response)
                status = response.status_code
        except TimeoutError:
            raise unavailable_error(f"{_host(url)} did not respond within {DEADLINE_S:g} s") from None
        except _FAILURES as failure:
            raise unavailable_error(f"{_host(url)} cannot be reached: {type(failure).__name__}: {failure}") from None
        if status >= 500 or 300 <= status < 400:
            raise unavailable_error(f"{_host(url)} responded with status {status}")
        return status, _parse(url, body)

    def check_url(self, url: str) -> None:
        """Raises Unavailable for a URL that the provider's document may not name."""
        parts = urlsplit(url)
        is_plain = parts.scheme == "http" and self._may_be_plain and parts.hostname == self._issuer_host
        if (parts.scheme != "https" and not is_plain) or not parts.hostname or parts.username is not None:
            raise unavailable_error(f"its document names {url[:200]!r}, which is not an https URL")


def _parse(url: str, body: bytes) -> dict[str, Any]:
    try:
        content = msgspec.json.decode(body)
    except msgspec.DecodeError:
        raise unavailable_error(f"{_host(url)} did not respond with JSON") from None
    if not isinstance(content, dict):
        raise unavailable_error(f"{_host(url)} did not respond with a JSON object")
    return content


async def _read(response: httpx.Response) -> bytes:
    body = bytearray()
    async for piece in response.aiter_raw():
        body += piece
        if len(body) > MAX_RESPONSE_BYTES:
            raise ValueError(f"the response is longer than {MAX_RESPONSE_BYTES} bytes")
    return bytes(body)


def _host(url: str) -> str:
    return urlsplit(url).netloc


_FAILURES = (
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.TimeoutException,
    httpx.HTTPError,
    httpx.InvalidURL,
    ssl.SSLError,
    OSError,
    ValueError,
)


def unavailable_error(reason: str) -> Unavailable:
    """The reason is for the operator's log; strangers learn nothing about the network."""
    log.warning("the identity provider cannot be used", reason=reason)
    return Unavailable(
        "The identity provider does not respond as it must. Try again later, sign in with a password, or inform the operator: "
        "the log has the reason.",
        code="PROVIDER_UNAVAILABLE",
    )
