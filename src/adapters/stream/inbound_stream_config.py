"""How the stream of a partition is made: replicated files that reject what does not fit, and that nobody deletes from."""

from __future__ import annotations

from nats.js import api

DUPLICATE_WINDOW_S = 120
"""An entry that is appended again within this time, because its confirmation was lost, is stored once."""


def inbound_stream(name: str, subject: str, replicas: int, max_bytes: int) -> api.StreamConfig:
    return api.StreamConfig(
        name=name,
        subjects=[subject],
        num_replicas=replicas,
        storage=api.StorageType.FILE,
        retention=api.RetentionPolicy.LIMITS,
        discard=api.DiscardPolicy.NEW,
        max_bytes=max_bytes,
        duplicate_window=DUPLICATE_WINDOW_S,
        allow_direct=True,
        deny_delete=True,
    )
