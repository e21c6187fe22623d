"""A start imports only what a service in its default setting uses: imports are most of its time and half of its memory."""

from __future__ import annotations

from pathlib import Path

from support.service import Service

RARELY_NEEDED = {
    "adapters.http.asyncapi.document": "the first request of /asyncapi.json",
    "adapters.http.openapi.document": "the first request of /openapi.json",
    "adapters.mcp.api_client": "the first request of /mcp",
    "adapters.mail.smtp": "LATCHBOARD_SMTP_URL",
    "aiomqtt": "an external broker",
    "aiosmtplib": "LATCHBOARD_SMTP_URL",
    "alembic": "a database that needs migrations",
    "app.simulator.run": "latchboard simulate",
    "asyncpg": "PostgreSQL",
    "httpx": "an agent, an identity provider, or the second courier",
    "mcp": "the first request of /mcp",
    "nats": "a cluster",
    "rich.progress": "latchboard keys rotate",
    "segno": "a second factor that is set up",
    "sqlalchemy.orm": "nothing",
    "webauthn": "a passkey",
}


def imported_modules(service: Service) -> set[str]:
    """Those of all starts in the log, by `-X importtime`."""
    lines = service.log(last=10_000_000).splitlines()
    return {line.rpartition("|")[2].strip() for line in lines if line.startswith("import time:")}


def test_a_start_with_the_default_settings_does_not_import_what_few_need(tmp_path: Path) -> None:
    with Service(tmp_path):
        pass  # creates the database
    # With a folder before the sources it is a process of its own, which has imported nothing yet.
    with Service(tmp_path, tmp_path / "nothing", PYTHONPROFILEIMPORTTIME="1") as service:
        imported = imported_modules(service)
    assert {"app.wiring.lifecycle", "quart", "sqlalchemy"} <= imported
    assert {name: why for name, why in RARELY_NEEDED.items() if name in imported} == {}
