"""Tests do not see each other's log settings, environment or working directory."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import structlog

from app.runtime.logging import configure_logging
from support.process_state import restored_process_state


def test_what_the_command_line_configures_ends_with_the_test(tmp_path: Path) -> None:
    root, level, handlers = logging.getLogger(), logging.getLogger().level, logging.getLogger().handlers[:]
    processors, directory = structlog.get_config()["processors"], Path.cwd()
    with restored_process_state():
        configure_logging("console", "CRITICAL")
        logging.getLogger("a.logger.of.this.test").setLevel("CRITICAL")
        logging.disable(logging.CRITICAL)
        os.chdir(tmp_path)
        os.environ["LATCHBOARD_OF_THIS_TEST"] = "1"
        removed = os.environ.pop("PATH")
    assert (root.level, root.handlers, structlog.get_config()["processors"]) == (level, handlers, processors)
    assert logging.getLogger("a.logger.of.this.test").isEnabledFor(logging.WARNING)
    assert (Path.cwd(), os.environ["PATH"]) == (directory, removed)
    assert "LATCHBOARD_OF_THIS_TEST" not in os.environ
