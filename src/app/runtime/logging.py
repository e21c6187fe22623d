"""One log for the program and its libraries: text lines on a terminal, JSON elsewhere.

A traceback shows the calls and never the values of variables: these may be passwords and keys.
"""

from __future__ import annotations

import logging
import sys

import structlog

_NOISY_LOGGERS = (
    "hypercorn.access",
    "hypercorn.error",
    "httpx",
    "httpcore",
    "aiosqlite",
    "asyncio",
    "alembic",
    "sqlalchemy",
    "hpack",
    "urllib3",
)


def configure_logging(log_format: str | None, level: str) -> None:
    """`log_format`: `console` or `json`; with None, console on a terminal and json elsewhere."""
    as_json = log_format == "json" or (log_format is None and not sys.stderr.isatty())
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    ending: list[structlog.typing.Processor] = (
        [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
        if as_json
        else [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback)]
    )
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared, processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *ending]
    )
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in _NOISY_LOGGERS:
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLevelName(level)))
