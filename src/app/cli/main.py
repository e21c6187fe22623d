"""Where the program begins. It sets the garbage collector before the rest is imported."""

from __future__ import annotations

from app.runtime import garbage_collector


def main() -> None:
    garbage_collector.pause()
    from app.cli.top_level_commands import app

    garbage_collector.relax()
    app()
