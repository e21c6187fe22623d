"""A log may be shown to others: it contains the failed calls and no values of variables."""

from __future__ import annotations

import json
import logging

import pytest
import structlog

from app.runtime import logging as service_logging


def sign_in(password: str) -> None:
    raise RuntimeError("the user directory does not answer")


@pytest.mark.parametrize("log_format", ["console", "json"])
def test_a_traceback_shows_the_calls_and_no_values(log_format: str, capsys: pytest.CaptureFixture[str]) -> None:
    service_logging.configure_logging(log_format, "INFO")
    try:
        sign_in("correct " + "horse")
    except RuntimeError:
        structlog.get_logger("door").exception("signing in failed", user="usr_1")
    output = capsys.readouterr().err
    assert "the user directory does not answer" in output
    assert "in sign_in" in output
    assert "usr_1" in output
    assert "correct horse" not in output


def test_a_json_log_line_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    service_logging.configure_logging("json", "INFO")
    structlog.get_logger("door").info("opened", device_id="dev_1")
    logging.getLogger("a.package").warning("careful: %s", "hot")
    ours, theirs = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert (ours["event"], ours["level"], ours["logger"], ours["device_id"]) == ("opened", "info", "door", "dev_1")
    assert (theirs["event"], theirs["level"], theirs["logger"]) == ("careful: hot", "warning", "a.package")
