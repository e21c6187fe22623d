"""A start imports only what a service in its default setting uses: imports are most of its time and two thirds of its memory."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from support.service import Service
from support.waiting import TIMEOUT_S

UPGRADE = (
    b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n"
)
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5)

RARELY_NEEDED = {
    "adapters.http.documents.asyncapi": "the first request of /asyncapi.json",
    "adapters.http.documents.openapi": "the first request of /openapi.json",
    "adapters.mail.smtp": "LATCHBOARD_SMTP_URL",
    "adapters.mcp.server": "the first request of /mcp",
    "aiomqtt": "an external broker",
    "aiosmtplib": "LATCHBOARD_SMTP_URL",
    "alembic": "a database of an older version",
    "app.cli.commands": "commands of an operator",
    "app.simulator.run": "latchboard simulate",
    "app.workers.homeassistant": "LATCHBOARD_HOMEASSISTANT",
    "asyncpg": "PostgreSQL",
    "cryptography.x509": "MQTT over TLS",
    "greenlet._greenlet": "PostgreSQL",
    "h2": "nothing",
    "http_ece": "Web Push",
    "httpx": "an agent, or an identity provider",
    "jsonschema_rs": "a command with parameters",
    "jwt": "the first sign-in",
    "mcp": "the first request of /mcp",
    "nats": "a cluster",
    "pygments": "nothing",
    "rich.console": "commands of an operator",
    "segno": "a second factor that is set up",
    "sqlalchemy.dialects.postgresql": "PostgreSQL",
    "sqlalchemy.orm": "nothing",
    "webauthn": "a passkey",
    "yarl": "a webhook",
}


MAKES_KEYS = {"cryptography.x509", "http_ece", "jwt"}
"""What also the first start imports, which makes the keys of the installation."""


def imported_modules(service: Service) -> list[set[str]]:
    """Of each start in the log, by `-X importtime`."""
    starts = service.log(last=10_000_000).split("import time: self [us]")[1:]
    lines = [[line for line in start.splitlines() if line.startswith("import time:")] for start in starts]
    return [{line.rpartition("|")[2].strip() for line in each} for each in lines]


def test_a_start_with_the_default_settings_does_not_import_what_few_need(tmp_path: Path) -> None:
    # With a folder before the sources it is a process of its own, which has imported nothing yet.
    service = Service(tmp_path, tmp_path / "nothing", PYTHONPROFILEIMPORTTIME="1")
    service.starts_on_nothing = True
    with service:
        service.stop()
        service.start()
        makes_the_database, later = imported_modules(service)
    assert {"app.wiring.lifecycle", "quart", "sqlalchemy"} <= later
    assert {name: why for name, why in RARELY_NEEDED.items() if name in makes_the_database - MAKES_KEYS} == {}
    assert {name: why for name, why in RARELY_NEEDED.items() if name in later} == {}


@pytest.mark.parametrize("opening", [UPGRADE, PREFACE], ids=["upgrade", "preface"])
def test_a_client_that_wants_http_2_gets_an_answer_without_it(tmp_path: Path, opening: bytes) -> None:
    """`tests/security/test_wire.py` for a process that has no h2, unlike those of the fork server."""
    with Service(tmp_path, tmp_path / "nothing") as service:
        with socket.create_connection(("127.0.0.1", service.port), timeout=TIMEOUT_S) as connection:
            connection.sendall(opening)
            assert connection.recv(100).startswith((b"HTTP/1.1 200", b"HTTP/1.1 404", b"HTTP/1.1 505"))
        assert service.error_lines() == []
