"""How often a notification is tried, and how many test messages a member may send."""

from __future__ import annotations

from domain.kernel.clock import HOUR_MS, MINUTE_MS
from domain.sign_in.policy import AttemptLimit

SEND_TIMEOUT_S = 10.0
"""Of one attempt."""
RETRY_PAUSES_MS = tuple(minutes * MINUTE_MS for minutes in (1, 5, 15, 60, 240))
"""After these pauses a notification that could not be sent is sent again; then it is given up."""
TEST_LIMIT = AttemptLimit(20, HOUR_MS)
"""Test messages of one member: the service is no tool to bother the owner of a topic or a chat."""
