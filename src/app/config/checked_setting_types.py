"""Types of settings with a check. A check raises ValueError, which says what is allowed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import AfterValidator, SecretStr

from adapters.http.core.callers import parse_networks
from app.config.url_checks import public_url


def checked(check: Callable[[str], object]) -> AfterValidator:
    """For a text that `check` accepts, or a secret one."""

    def validate(value: Any) -> Any:
        check(value.get_secret_value() if isinstance(value, SecretStr) else value)
        return value

    return AfterValidator(validate)


Networks = Annotated[str, checked(parse_networks)]
"""Addresses and networks, comma-separated."""
PublicUrl = Annotated[str, AfterValidator(public_url)]
"""A URL without a path."""
