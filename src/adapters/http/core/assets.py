"""Static content: compressed for whoever accepts gzip, and with an `ETag`, so that unchanged content costs one short response.

It stands alone although it is short: the dashboard and the documents share it.
"""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from functools import cached_property

from quart import Response, request

MIN_COMPRESSED_BYTES = 512
"""Below this, compression saves less than its header costs."""


@dataclass(frozen=True)
class Asset:
    content: bytes
    content_type: str

    @cached_property
    def compressed(self) -> bytes | None:
        """With gzip, once; None for images and very small files."""
        worthwhile = self.content_type != "image/png" and len(self.content) >= MIN_COMPRESSED_BYTES
        return gzip.compress(self.content, mtime=0) if worthwhile else None

    @cached_property
    def etag(self) -> str:
        return hashlib.sha256(self.content).hexdigest()[:20]


def asset_response(asset: Asset) -> Response:
    """The content, or 304 for a client that has it. It may keep the content, and asks each time whether that is current."""
    compressed = asset.compressed if request.accept_encodings.quality("gzip") > 0 else None
    response = Response(asset.content if compressed is None else compressed, content_type=asset.content_type)
    response.headers["Cache-Control"] = "no-cache"
    if asset.compressed is not None:
        response.headers["Vary"] = "Accept-Encoding"
    if compressed is not None:
        response.headers["Content-Encoding"] = "gzip"
    etag = asset.etag if compressed is None else f"{asset.etag}-gzip"
    response.set_etag(etag)
    if request.if_none_match.contains(etag):
        response.status_code = 304
        response.set_data(b"")
    return response
