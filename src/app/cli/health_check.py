"""`latchboard health`: asks the running service whether it works, for the health checks of containers and balancers."""

from __future__ import annotations

import httpx

from app.cli.startup_banner import http_url
from app.config.settings import Settings
from app.runtime.start import StartupError

RESPONSE_TIMEOUT_S = 4.0


def check_readiness(settings: Settings) -> str:
    """The text of `/readyz`. Raises StartupError when the service does not answer or is not ready."""
    url = f"{http_url(settings)}/readyz"
    try:
        response = httpx.get(url, timeout=RESPONSE_TIMEOUT_S, trust_env=False)
    except httpx.HTTPError as error:
        raise StartupError(f"{url} does not answer: {error or type(error).__name__}") from None
    if response.status_code != 200:
        raise StartupError(f"{url} answers {response.status_code}: {response.text.strip()}")
    return response.text.strip()
