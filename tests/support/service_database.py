"""Reads the program's SQLite database directly, and fills it by copying rows where the API would take minutes."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import Any

from support import postgres
from support.service import Service


class ServiceDatabase:
    def __init__(self, service: Service) -> None:
        self._path = service.data_dir / "latchboard.db"
        self._url: str | None = service.settings.get("LATCHBOARD_DATABASE_URL")

    @property
    def on_postgres(self) -> bool:
        return self._url is not None

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of one statement. Do not call it inside an event loop."""
        if self.on_postgres:
            return asyncio.run(_on_postgres(sql))
        connection = sqlite3.connect(self._path, timeout=30)
        try:
            with connection:
                return connection.execute(sql).fetchall()
        finally:
            connection.close()

    def copy_row(self, table: str, where: str, copies: int, **changed: str) -> None:
        """Insert `copies` of one row; `changed`: SQL expressions of `i`, 1 to `copies`."""
        if self.on_postgres:
            columns = [
                row[0]
                for row in self.run(
                    f"SELECT column_name FROM information_schema.columns WHERE table_name = '{table}' AND table_schema = 'public'"
                )
            ]
            numbers = f"WITH n AS (SELECT generate_series(1, {copies}) AS i) "
        else:
            columns = [row[1] for row in self.run(f"PRAGMA table_info({table})")]
            numbers = f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {copies}) "
        kept = [column for column in columns if column not in ("seq", "device_no")] + (
            ["device_no"] if table == "schedules" else []
        )
        values = ", ".join(changed.get(column, f"t.{column}") for column in kept)
        insert = f"INSERT INTO {table} ({', '.join(kept)}) SELECT {values} FROM {table} t, n WHERE {where}"
        self.run(f"{insert.replace(' SELECT', ' ' + numbers + 'SELECT', 1)}")

    def copy_slots(self, device_id: str, copies: int) -> None:
        """Add so many offline devices, each with the slots of this one."""
        number = "lpad(CAST(i AS text), 8, '0')" if self.on_postgres else "substr('00000000' || i, -8)"
        name = f"'dev_copy00000000' || {number}"
        copy = f"'Copy ' || {number}"
        self.copy_row("devices", f"t.device_id = '{device_id}'", copies, device_id=name, name=copy, is_online="false")
        for (slot,) in self.run(f"SELECT slot FROM schedules WHERE device_id = '{device_id}'"):
            self.copy_row(
                "schedules",
                f"t.device_id = '{device_id}' AND t.slot = {slot}",
                copies,
                schedule_id=f"'sched_copy{slot}00000000' || {number}",
                device_id=name,
                device_no=f"(SELECT d.device_no FROM devices d WHERE d.device_id = {name})",
            )


async def _on_postgres(sql: str) -> list[tuple[Any, ...]]:
    import asyncpg

    connection = await asyncpg.connect(postgres.plain_url())
    try:
        return [tuple(row) for row in await connection.fetch(sql)]
    finally:
        await connection.close()
