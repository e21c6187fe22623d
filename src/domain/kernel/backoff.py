"""How long to wait before the next attempt of something that has failed. The pauses are data; the caller sleeps."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """`pauses_s`: one pause in seconds after each consecutive failure; the last one repeats. At least one is needed."""

    pauses_s: tuple[float, ...]

    @classmethod
    def doubling(cls, first_s: float, max_s: float) -> Backoff:
        """Exponential backoff: `first_s`, twice that, and so on, up to `max_s`."""
        pauses_s = [first_s]
        while pauses_s[-1] < max_s:
            pauses_s.append(min(2 * pauses_s[-1], max_s))
        return cls(tuple(pauses_s))

    def pause_s(self, failures: int) -> float:
        """The pause after `failures` (1, 2, …) consecutive failures."""
        return self.pauses_s[min(failures, len(self.pauses_s)) - 1]


RETRY_BACKOFF = Backoff((0.05, 0.2, 1.0, 2.0, 5.0))
"""For work inside the service. Most failures are a database that is away for a moment."""
