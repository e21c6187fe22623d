"""Every idempotent operation marks the claim of its `Idempotency-Key` in the transaction that makes the change.

A service that wrote with `caller=None` for a caller's change would pass all other tests: only a process that dies between the change
and its response would make the change twice. The operations are read from the document of the whole program.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from adapters.storage.sql.repositories.stored_responses import SqlStoredResponseRepository
from domain.kernel.idempotency import StoredResponse
from security.access_table import operation_of, rows
from security.calls import BODIES
from security.people import gather
from support.in_process_app import in_process_app


async def test_every_idempotent_operation_marks_its_claim_with_its_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marked: list[str] = []
    mark_committed = SqlStoredResponseRepository.mark_committed

    async def record(self: SqlStoredResponseRepository, claim: StoredResponse) -> None:
        marked.append(claim.key)
        await mark_committed(self, claim)

    monkeypatch.setattr(SqlStoredResponseRepository, "mark_committed", record)
    async with in_process_app(tmp_path) as program:
        people = await gather(program)
        paths = (await program.http.get("/openapi.json")).json()["paths"]
        unmarked, sent = [], []
        for row in rows():
            method, path = operation_of(row)
            parameters = paths[f"/api/v1{path}"][method.lower()].get("parameters", ())
            if "Idempotency-Key" not in {one["name"] for one in parameters}:
                continue
            ids = await people.ours.create(row)
            filled = re.sub(r"\{(\w+)\}", lambda part, ids=ids: ids[part[1]], path)
            body = BODIES[row](ids) if row in BODIES else None
            caller = people.ours.requester if path.endswith("/withdraw") else people.callers["Owner"]
            answer = await caller.send(method, filled, body, headers={"Idempotency-Key": row})
            assert answer.is_success, f"{row}: {answer.status_code} {answer.text}"
            sent.append(row)
            if row not in marked:
                unmarked.append(row)
    assert unmarked == []
    assert len(sent) > 15
