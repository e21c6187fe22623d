"""Batches of NDJSON by `POST`, signed as webhooks are."""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Sequence
from typing import Final

import httpx

from domain.audit.stream import AuditExportLine, AuditSinkRefusedError, AuditSinkUnavailableError
from domain.kernel.clock import Clock
from domain.webhooks.reference import service_signature, standard_signature

TIMEOUT_S: Final = 30.0
_TRY_AGAIN = frozenset({408, 425, 429})


class HttpAuditSink:
    """`secret`: `whsec_…` as webhooks have it, or None. The id of a batch comes from its content, so repetitions have
    the same."""

    def __init__(self, url: str, secret: str | None, tls: ssl.SSLContext, clock: Clock) -> None:
        self._url = url
        self._secret = secret
        self._clock = clock
        self._client = httpx.AsyncClient(timeout=TIMEOUT_S, verify=tls)

    async def deliver(self, lines: Sequence[AuditExportLine]) -> None:
        body = "".join(f"{line.text}\n" for line in lines).encode()
        try:
            async with self._client.stream("POST", self._url, content=body, headers=self._headers(body)) as response:
                status = response.status_code
        except httpx.HTTPError as error:
            raise AuditSinkUnavailableError(str(error) or type(error).__name__) from error
        if status >= 500 or status in _TRY_AGAIN:
            raise AuditSinkUnavailableError(f"the receiver answered {status}")
        if not 200 <= status < 300:
            raise AuditSinkRefusedError(f"the receiver answered {status}. Check the URL and its access rules")

    def _headers(self, body: bytes) -> dict[str, str]:
        identity, now_s = f"audit_{hashlib.sha256(body).hexdigest()[:32]}", self._clock.now_ms() // 1000
        headers = {"Content-Type": "application/x-ndjson", "webhook-id": identity, "webhook-timestamp": str(now_s)}
        if self._secret is not None:
            headers["webhook-signature"] = standard_signature(self._secret, identity, now_s, body)
            headers["X-Service-Signature"] = service_signature(self._secret, body)
        return headers
