"""What a test changes in the whole process ends with it: log handlers and levels, structlog, environment, working directory.

Commands of the command line configure the log for a program of their own; after them a test that reads log records would find none.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

import structlog


@contextmanager
def restored_process_state() -> Iterator[None]:
    """Give the process back as it was. A logger that is new at the end loses its handlers and its level."""
    loggers = {each: (each.level, each.propagate, each.disabled, each.handlers[:]) for each in all_loggers()}
    disabled, configuration = logging.root.manager.disable, structlog.get_config()
    environment, directory = dict(os.environ), os.getcwd()
    yield
    for logger in all_loggers():
        level, logger.propagate, logger.disabled, logger.handlers[:] = loggers.get(logger, (logging.NOTSET, True, False, []))
        logger.setLevel(level)
    logging.disable(disabled)
    structlog.configure(**configuration)
    os.chdir(directory)
    restore_environment(environment)


def restore_environment(before: dict[str, str]) -> None:
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    for name, value in before.items():
        if os.environ.get(name) != value:
            os.environ[name] = value


def all_loggers() -> list[logging.Logger]:
    known = logging.root.manager.loggerDict.values()
    return [logging.root, *(each for each in known if isinstance(each, logging.Logger))]
