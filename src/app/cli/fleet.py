"""What `latchboard plan`, `apply` and `export` do. Of its own, so that a start of the service does not load it."""

from __future__ import annotations

import json
import os
import re
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, TextIO
from urllib.parse import urlsplit

import httpx
import typer

from app.cli.fleet_document import FleetDocumentWithLines, FleetFileError, format_fleet_file, parse_fleet_file
from app.cli.serve import http_url
from app.cli.support import (
    EXIT_FAILURE,
    EXIT_USAGE,
    exit_with,
    load_settings_or_exit,
    secret_or_exit,
    stderr_console,
    stdout_console,
)
from domain.kernel.dataclasses import service

RESPONSE_TIMEOUT_S = 60.0
RETRY_FOR_S = 60.0
"""How long a service that does not answer, because it starts again, is asked again."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 5.0
_RETRIED = frozenset({429, 502, 503, 504})
_SIGNS = {"CREATE": "+", "CHANGE": "~", "DELETE": "-"}
_WITH_SECRETS = ("apiKeys", "webhooks")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class FleetFileApiError(Exception):
    """The service refused, or did not answer. `details`: (place in the request, message)."""

    def __init__(self, message: str, code: str = "", details: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.details = details


def plan_file(file: Path, url: str | None, *, prune: bool, check: bool, as_json: bool) -> None:
    fleet = _read(file)
    with fleet_client(_service_url(url)) as client:
        planned = _plan(client, fleet, prune)
    _show(planned, fleet, as_json=as_json)
    if check and planned["objects"]:
        raise typer.Exit(EXIT_FAILURE)


def apply_file(file: Path, url: str | None, *, prune: bool, secrets: str | None, reissue: bool) -> None:
    if reissue and secrets is None:
        exit_with("--reissue-unused needs --secrets FILE: where the new credentials go.", EXIT_USAGE)
    fleet = _read(file)
    credentials = "NONE" if secrets is None else "UNUSED" if reissue else "NEW"
    with fleet_client(_service_url(url)) as client:
        planned = _plan(client, fleet, prune, credentials)
        made = [each["name"] for each in planned["objects"] if each["section"] in _WITH_SECRETS and each["action"] == "CREATE"]
        if made and secrets is None:
            exit_with(fleet.hide(f"{', '.join(made)}: the secret is shown once. Say where it goes: --secrets FILE."), EXIT_USAGE)
        if not planned["objects"]:
            _show(planned, fleet, done=True)
            return
        with _open_secrets(secrets) as output:
            applied = _apply(client, fleet, prune, credentials)
            _write_secrets(output, applied)
    _show(applied, fleet, done=True)


def export_file(file: Path | None, url: str | None, *, project: str | None, variables: Path | None, force: bool) -> None:
    if file is not None and file.exists() and not force:
        exit_with(f"{file} exists. Name another file, or give --force.", EXIT_USAGE)
    with fleet_client(_service_url(url)) as client:
        try:
            exported = client.export(project)
        except FleetFileApiError as error:
            exit_with(str(error), EXIT_FAILURE)
    if exported["leftOut"]:
        hidden = ", ".join(exported["leftOut"])
        stderr_console().print(f"latchboard: left out, because you may not read them: {hidden}", markup=False)
    named = _name_urls(exported["document"])
    if variables is not None:
        with _open_secrets(str(variables)) as output:
            output.writelines(f"{name}={value}\n" for name, value in named.items())
    elif named:
        stderr_console().print(
            f"latchboard: URLs of webhooks may hold a token, so the file names variables: {', '.join(named)}. --variables FILE "
            "writes them.",
            markup=False,
        )
    text = format_fleet_file(exported["document"])
    if file is None:
        sys.stdout.write(text)
        return
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        exit_with(f"{file} cannot be written: {error.strerror or error}", EXIT_FAILURE)


def _name_urls(document: dict[str, Any]) -> dict[str, str]:
    """Put a variable in the place of each webhook's URL; variable → URL."""
    named: dict[str, str] = {}
    for webhook in document.get("webhooks") or ():
        host = re.sub(r"[^A-Z0-9]+", "_", (urlsplit(webhook["url"]).hostname or "").upper())
        name, number = f"WEBHOOK_{host}", 1
        while named.get(name, webhook["url"]) != webhook["url"]:
            number += 1
            name = f"WEBHOOK_{host}_{number}"
        named[name] = webhook["url"]
        webhook["url"] = f"${{{name}}}"
    return named


def _fill_in_urls(fleet: FleetDocumentWithLines) -> None:
    """The values of the variables that URLs of webhooks name. Exits if one is not set."""
    webhooks = fleet.document.get("webhooks")
    for index, webhook in enumerate(webhooks if isinstance(webhooks, list) else ()):
        if not isinstance(webhook, dict) or not isinstance(webhook.get("url"), str):
            continue  # the service says what is wrong with it
        for name in _VARIABLE.findall(webhook["url"]):
            if not (value := os.environ.get(name)):
                place = fleet.place(f"webhooks.{index}.url")
                exit_with(f"{place}: the variable {name} is not set. Set it to the URL of this webhook.", EXIT_USAGE)
            fleet.variables[name] = value
        webhook["url"] = _VARIABLE.sub(lambda found: fleet.variables[found[1]], webhook["url"])


def _service_url(url: str | None) -> str:
    return url or http_url(load_settings_or_exit())


def _read(file: Path) -> FleetDocumentWithLines:
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        exit_with(f"{file} cannot be read: {getattr(error, 'strerror', None) or error}", EXIT_USAGE)
    try:
        fleet = parse_fleet_file(str(file), text)
    except FleetFileError as error:
        exit_with(str(error), EXIT_USAGE)
    _fill_in_urls(fleet)
    return fleet


def _plan(client: FleetFileApiClient, fleet: FleetDocumentWithLines, prune: bool, credentials: str = "NONE") -> Any:
    try:
        return client.plan({"document": fleet.document, "prune": prune, "credentials": credentials})
    except FleetFileApiError as error:
        _refuse(error, fleet)


def _apply(client: FleetFileApiClient, fleet: FleetDocumentWithLines, prune: bool, credentials: str) -> Any:
    try:
        return client.apply({"document": fleet.document, "prune": prune, "credentials": credentials})
    except FleetFileApiError as error:
        if error.code == "IDEMPOTENCY_ANSWER_LOST":
            exit_with(
                "The file was applied, but the service stopped before it could answer with the new secrets. Apply again with "
                "--reissue-unused for the devices; rotate the secrets of new webhooks; delete new API keys and apply again.",
                EXIT_FAILURE,
            )
        _refuse(error, fleet)


def _refuse(error: FleetFileApiError, fleet: FleetDocumentWithLines) -> NoReturn:
    """With the line of the file for each fault."""
    inside = [(place, message) for place, message in error.details if place.startswith("document.")]
    if not inside:
        exit_with(str(error), EXIT_FAILURE)
    shown = [fleet.hide(f"{fleet.place(place.removeprefix('document.'))}: {message}") for place, message in inside]
    exit_with("\n".join([f"{error.code or 'refused'}. Nothing was changed.", *shown]), EXIT_FAILURE)


def _open_secrets(target: str | None) -> TextIO:
    """Before anything is applied: a file that cannot be written must not cost the secrets."""
    if target is None:
        return open(os.devnull, "w", encoding="utf-8")
    if target == "-":
        return os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    try:
        number = os.open(target, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.chmod(target, 0o600)
    except OSError as error:
        exit_with(f"{target} cannot be written: {error.strerror or error}. Nothing was changed.", EXIT_USAGE)
    return os.fdopen(number, "w", encoding="utf-8")


def _write_secrets(output: TextIO, applied: Any) -> None:
    for each in applied["objects"]:
        shown = {"section": each["section"], "name": each["name"], "id": each["id"]}
        if each["secret"] is not None:
            output.write(json.dumps({**shown, "secret": each["secret"]}) + "\n")
        if each["credentials"] is not None:
            output.write(json.dumps({**shown, "credentials": each["credentials"]}) + "\n")
    output.flush()


def _show(result: Any, fleet: FleetDocumentWithLines, *, as_json: bool = False, done: bool = False) -> None:
    if as_json:
        stdout_console().print_json(data=result)
        return
    for each in result["objects"]:
        for line in _lines(each):
            stdout_console().print(fleet.hide(line), markup=False)
    counts = result["counts"]
    words = ("created", "changed", "deleted") if done else ("to create", "to change", "to delete")
    numbers = [f"{counts[kind]} {word}" for kind, word in zip(("create", "change", "delete"), words, strict=True)]
    stdout_console().print(f"{', '.join(numbers)}, {counts['unchanged']} unchanged.", markup=False)


def _lines(shown: Any) -> Iterator[str]:
    name = shown["name"] if shown["device"] is None else f"{shown['device']} / {shown['name']}"
    yield f"{_SIGNS[shown['action']]} {shown['section']} {name}"
    for change in shown["changes"]:
        yield f"    {change['field']}: {_short(change['before'])} → {_short(change['after'])}"


def _short(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


@service
class FleetFileApiClient:
    """Calls the service. Every method raises FleetFileApiError."""

    http: httpx.Client

    def export(self, project: str | None) -> Any:
        return self._call("GET", "/fleet", params={} if project is None else {"project": project})

    def plan(self, body: Mapping[str, Any]) -> Any:
        return self._call("POST", "/fleet/plan", json=body)

    def apply(self, body: Mapping[str, Any]) -> Any:
        """Once, whatever happens to the connection or the service: each attempt has the same `Idempotency-Key`."""
        return self._call("POST", "/fleet/apply", json=body, headers={"Idempotency-Key": str(uuid.uuid4())})

    def _call(self, method: str, path: str, **request: Any) -> Any:
        until, pause = time.monotonic() + RETRY_FOR_S, FIRST_PAUSE_S
        while True:
            answer = self._send(method, path, **request)
            if isinstance(answer, httpx.Response) and not _asks_for_retry(answer):
                return _content(answer)
            if time.monotonic() + pause > until:
                raise _no_answer(self.http.base_url, answer)
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)

    def _send(self, method: str, path: str, **request: Any) -> httpx.Response | httpx.HTTPError:
        try:
            return self.http.request(method, path, **request)
        except httpx.HTTPError as error:
            return error


@contextmanager
def fleet_client(url: str) -> Iterator[FleetFileApiClient]:
    headers = {"Authorization": f"Bearer {secret_or_exit('LATCHBOARD_TOKEN')}"}
    with httpx.Client(base_url=f"{url.rstrip('/')}/api/v1", headers=headers, timeout=RESPONSE_TIMEOUT_S) as http:
        yield FleetFileApiClient(http=http)


def _asks_for_retry(answer: httpx.Response) -> bool:
    return answer.status_code in _RETRIED or (answer.status_code == 409 and "IDEMPOTENCY_IN_PROGRESS" in answer.text)


def _content(answer: httpx.Response) -> Any:
    try:
        content = answer.json()
    except ValueError:
        message = f"{answer.request.url} does not return JSON ({answer.status_code}). Is it the URL of Latchboard?"
        raise FleetFileApiError(message) from None
    if answer.is_success:
        return content
    details = tuple((each["field"], each["message"]) for each in content.get("details") or ())
    raise FleetFileApiError(f"{content.get('error')}: {content.get('message')}", str(content.get("error")), details)


def _no_answer(url: httpx.URL, last: httpx.Response | httpx.HTTPError) -> FleetFileApiError:
    if isinstance(last, httpx.Response):
        return FleetFileApiError(f"{url} answers {last.status_code} for {RETRY_FOR_S:.0f} seconds: {last.text[:200]}")
    return FleetFileApiError(f"{url} does not answer: {last or type(last).__name__}. Is the service running?")
