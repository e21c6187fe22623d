"""The guides at the head of the OpenAPI document: what holds for every operation. Markdown, for readers of `/docs`."""

from __future__ import annotations

GUIDES = """Self-hosted control plane for relay devices: permissions, schedules, rules and approvals.

## Authentication

A person signs in with `POST /api/v1/auth/login` and sends the access token as `Authorization: Bearer <token>`. It is valid for
15 minutes; `POST /api/v1/auth/refresh` trades the refresh token for a new pair, once. A program sends an API key in `X-Api-Key`.
A key may do what its grants allow and nothing else. A pipeline that manages the account sends a service session, `lbs_…`, as a
bearer token; it may do the operations that it was made for, and each operation names the ones it needs in its `security`.

## Errors

Every error has the same body: `error`, a stable code; `message`, what is wrong and what to do about it; `details`, the fields at
fault; `requestId`, which is also in `X-Request-Id` and in the log. Decide by `error`, never by `message`. Each operation lists
the codes that it can answer for each status. A 403 says which check failed. A 404 is also the answer for what belongs to another
account. After 429 and 503 wait for `Retry-After` seconds. Later versions may add codes and fields: treat an unknown code as its
status says, and ignore fields that you do not know.

## Paging

A list takes `limit`. A response that is not the last page has a `Link` header with `rel="next"`: request that URL for the next
page, and end when there is none. Responses with `data` have the same in `cursor` and `hasMore`. Do not build such a URL or
cursor yourself. A cursor names a position and no entry, so entries that are deleted or added meanwhile end no walk and hide
nothing. Without `limit` a page has at most 1,000 entries.

## Conditional requests

A `GET` of one object has an `ETag`. Send it as `If-Match` with a change: if the object shows something else by now, the answer is
412 `PRECONDITION_FAILED` and nothing is done. Send it as `If-None-Match` with a `GET`: if nothing has changed, the answer is 304.

## Idempotency

Send an `Idempotency-Key` of your own, such as a UUID, with a request that must not be done twice. If the connection breaks,
send the same request with the same key again: within 24 hours you get the first success again, with `Idempotency-Replayed`.
Only successes are stored; after an error the key is free. A different request with the same key is 409 `IDEMPOTENCY_MISMATCH`.

## Time

Times are ISO 8601 in UTC with milliseconds, such as `2026-11-21T04:00:02.120Z`; requests may have another offset. A time filter
in a query also takes Unix milliseconds. Slots of schedules (`onTs`, `offTs`) are Unix seconds. Recurrence rules and the hours of
grants are in the named `timezone`, summer time included.
"""
