"""Logs inside a test are plain: a traceback with the locals of every frame takes seconds on a busy machine. The garbage collector
is set as the program sets it."""

from __future__ import annotations

import structlog

from app.runtime import garbage_collector

garbage_collector.relax()

structlog.configure(
    processors=[
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback),
    ]
)
