"""The spread of retry pauses. It is no secret, so the ordinary random generator is enough."""

from __future__ import annotations

import random


class RandomJitter:
    def spread(self) -> float:
        return random.uniform(-1.0, 1.0)  # noqa: S311 - spreads load, hides nothing
