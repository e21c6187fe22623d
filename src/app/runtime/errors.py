"""Why a start does not happen: the one error of ours that says it in words for the operator."""

from __future__ import annotations


class StartupError(Exception):
    """Why the service does not start, and what to do about it."""
