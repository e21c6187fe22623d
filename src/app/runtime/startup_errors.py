"""Why the service does not start. Each message tells the operator what is wrong and what to do."""

from __future__ import annotations

from adapters.http.server.hypercorn import UnsupportedHypercornError
from app.config.settings import SettingsError
from domain.kernel.errors import Unavailable


class StartupError(Exception):
    """The service cannot start, or a command of the command line cannot run."""


class PortInUseError(Exception):
    """The message names the port and the variable that selects another one."""


def startup_error_message(error: BaseException) -> str | None:
    """The message for the operator; None for an error that is not ours, which deserves a traceback."""
    if isinstance(error, SettingsError | StartupError | PortInUseError | UnsupportedHypercornError):
        return str(error)
    if isinstance(error, Unavailable):
        return error.message
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}. Correct the path, or give this user access to it."
    return None
