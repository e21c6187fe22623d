"""Logs of what runs inside a test are plain: a traceback drawn with the locals of every frame takes seconds on a busy machine. And
garbage is looked for as the program does it."""

from __future__ import annotations

import gc

import structlog

from app.cli.run import GC_THRESHOLDS

gc.set_threshold(*GC_THRESHOLDS)

structlog.configure(
    processors=[
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback),
    ]
)
