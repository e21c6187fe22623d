"""The commands that run the service, `latchboard serve` and `latchboard demo`, with what every command line may have.

The commands of an operator are apart (`commands.py`): they and their libraries would stay in the service's memory.
"""

from __future__ import annotations

import os
import threading
from typing import Annotated, Any, NoReturn

import structlog
import typer

from app.cli.support import TerminalOutput, load_settings_or_exit, our_errors_exit, run_async
from app.config.settings import Settings, unknown_variable_warnings
from app.runtime import logging, output
from app.version import VERSION

app = typer.Typer(
    name="latchboard",
    help="Control plane for relay devices: who may switch what, when, and with whose approval.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


def _print_version(show: bool) -> None:
    if show:
        TerminalOutput().print(f"latchboard {VERSION}")
        raise typer.Exit


@app.callback()
def global_options(
    version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")] = False,
) -> None:
    """Control plane for relay devices: who may switch what, when, and with whose approval."""


@app.command()
def serve(
    workers: Annotated[
        int | None, typer.Option(help="Processes that share the HTTP port; needs PostgreSQL. Default: LATCHBOARD_WORKERS, or 1.")
    ] = None,
) -> None:
    """Run the service until Ctrl-C or SIGTERM."""
    _run_service(load_settings_or_exit(**({} if workers is None else {"workers": workers})), demo=False)


@app.command()
def demo() -> None:
    """Run the service with ten simulated devices in an account to look at, in a separate data directory."""
    settings = load_settings_or_exit()
    changes: dict[str, Any] = {"webhook_allow_private": True, "workers": 1}
    if "data_dir" not in settings.model_fields_set:
        from app.wiring.adapters import prepare_data_dir

        with our_errors_exit():
            prepare_data_dir(settings.data_dir)  # the demo's is below it; this one gets mode 0700 too
        changes["data_dir"] = settings.data_dir / "demo"
    _run_service(settings.model_copy(update=changes), demo=True)


def _run_service(settings: Settings, *, demo: bool) -> None:
    with output.queued_outputs():
        code = _run(settings, demo=demo)
    _exit_process(code)


def _run(settings: Settings, *, demo: bool) -> int:
    """Returns the exit code."""
    logging.configure_logging(settings.log_format, settings.log_level)
    for message in unknown_variable_warnings():
        structlog.get_logger("settings").warning(f"ignored: {message}")
    if settings.workers > 1:
        return _run_workers(settings)
    from app.cli.serve import serve as run
    from app.wiring.adapters import with_free_ports

    try:
        return run_async(run(with_free_ports(settings), demo=demo))
    except typer.Exit as exit_request:
        return exit_request.exit_code


def _run_workers(settings: Settings) -> int:
    from app.cli.worker_processes import run_workers

    with our_errors_exit():
        return run_workers(settings)


def _exit_process(code: int) -> NoReturn:
    """Exit even if a thread is left, for example of a database that did not close in time: a normal exit would wait for it
    forever."""
    left = [thread.name for thread in threading.enumerate() if not thread.daemon and thread is not threading.main_thread()]
    if not left:
        raise typer.Exit(code)
    structlog.get_logger("service").debug("threads are still running", threads=left)
    output.drain_outputs()
    os._exit(code)
