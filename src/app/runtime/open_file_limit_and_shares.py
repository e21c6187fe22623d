"""How many files the process may open, and which part of them each door gets.

Each connection is an open file. Strangers at one door must not use up what another door, the database and the log need, so each
has its part, and a fifth stays free.
"""

from __future__ import annotations

import resource

import structlog

MQTT_SHARE = 0.6
HTTP_SHARE = 0.2
MAX_MQTT_CONNECTIONS = 50_000
MAX_HTTP_CONNECTIONS = 10_000
LOW_LIMIT = 4_096
_UNLIMITED = 1_048_576

log = structlog.get_logger("open_files")


def raise_limit() -> None:
    """Raise the soft limit to the hard one: it is often 1,024 while the hard limit is a million."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        log.info("raised the limit of open files", soft=soft, hard=hard)
    if limit() < LOW_LIMIT:
        log.warning(
            "few files may be open, so few devices and clients can connect. Raise the hard limit, for systemd by LimitNOFILE=",
            limit=limit(),
            mqtt_connections=default_mqtt_connections(),
            http_connections=default_http_connections(),
        )


def limit() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _UNLIMITED if soft == resource.RLIM_INFINITY else soft


def default_mqtt_connections() -> int:
    return min(MAX_MQTT_CONNECTIONS, int(limit() * MQTT_SHARE))


def default_http_connections() -> int:
    return min(MAX_HTTP_CONNECTIONS, int(limit() * HTTP_SHARE))
