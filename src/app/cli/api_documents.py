"""`latchboard openapi` and `latchboard asyncapi`: print the documents for programs and their generators."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from app.cli.command_support import EXIT_FAILURE, exit_with, run_async
from app.config.settings import Settings
from app.version import VERSION

OutputFile = Annotated[Path | None, typer.Option(help="Write to this file instead of standard output.")]


def openapi(output: OutputFile = None) -> None:
    """Print the OpenAPI 3.1 document: REST and webhooks."""
    _print_document(run_async(_build_openapi_document()), output)


def asyncapi(output: OutputFile = None) -> None:
    """Print the AsyncAPI 3 document: MQTT topics, the live feed, webhooks."""
    from app.wiring.asyncapi_document import create_asyncapi_document

    _print_document(create_asyncapi_document(), output)


def _print_document(document: dict[str, Any], output: Path | None) -> None:
    text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    if output is None:
        sys.stdout.write(text)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        exit_with(f"{output} cannot be written: {error.strerror}", EXIT_FAILURE)


async def _build_openapi_document() -> dict[str, Any]:
    """Build the document from a program that is composed in a temporary directory and never started."""
    from adapters.http.openapi.document import build_document
    from app.wiring.compose import compose

    with tempfile.TemporaryDirectory() as folder:
        settings = Settings.model_construct(data_dir=Path(folder), engine="reference", broker="mqtt://127.0.0.1")
        program = compose(settings)
        try:
            return build_document(program.http_app, version=VERSION)
        finally:
            await program.adapters.courier.close()
            program.adapters.hasher.close()
            program.adapters.login_hasher.close()
