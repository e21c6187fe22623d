"""Where the program begins. It sets the garbage collector before the rest is imported, and imports for the service only its own
commands."""

from __future__ import annotations

import sys

from app.runtime import interpreter

SERVICE_COMMANDS = ("serve", "demo")


def main() -> None:
    interpreter.pause()
    interpreter.import_structlog()
    if sys.argv[1:2] and sys.argv[1] in SERVICE_COMMANDS:
        interpreter.import_hypercorn()
        from app.cli.service_commands import app
    else:
        from app.cli.commands import app

    interpreter.relax()
    app()
