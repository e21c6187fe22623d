"""Commands that print a document: `openapi` and `asyncapi`, for programs and their generators, and `broker-config`, with which an
external broker loses nothing that it has acknowledged.
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from adapters.mqtt.mosquitto import DEFAULT_DATA_DIR, DEFAULT_FILES, mosquitto_config
from app.cli.support import EXIT_FAILURE, exit_with, load_settings_or_exit, run_async
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
    from adapters.http.documents.openapi import build_document
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


broker_config = typer.Typer(help="Write the configuration of an external broker.", no_args_is_help=True)


@broker_config.callback()
def _keep_subcommands() -> None:
    """Write the configuration of an external broker."""


@broker_config.command("mosquitto")
def broker_config_mosquitto(
    output: Annotated[Path | None, typer.Option(help="Write to this new file instead of standard output.")] = None,
    data_dir: Annotated[Path, typer.Option(help="Where Mosquitto keeps queued messages.")] = DEFAULT_DATA_DIR,
    listener: Annotated[list[str] | None, typer.Option(help="Port, or 'port address'; may be repeated. Default: 1883.")] = None,
) -> None:
    """A complete mosquitto.conf, with the files of LATCHBOARD_MOSQUITTO_PASSWORD_FILE, _ACL_FILE and _PID_FILE."""
    settings = load_settings_or_exit()
    chosen = {
        "password_file": settings.mosquitto_password_file,
        "acl_file": settings.mosquitto_acl_file,
        "pid_file": settings.mosquitto_pid_file,
    }
    files = replace(DEFAULT_FILES, **{name: path.resolve() for name, path in chosen.items() if path is not None})
    text = mosquitto_config(files, data_dir=data_dir, listeners=listener or ["1883"])
    if output is None:
        sys.stdout.write(text)
        return
    try:
        with output.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        exit_with(f"{output} exists already. Name a new file, compare the two, and move it into place.", EXIT_FAILURE)
    except OSError as error:
        exit_with(f"{output} cannot be written: {error.strerror}.", EXIT_FAILURE)
