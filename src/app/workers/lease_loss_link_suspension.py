"""Closes this instance to devices while it cannot prove that no other instance serves them.

An instance that others may replace holds a lease, which it renews in the database. When it cannot renew, others take it for dead
after a while. It acts before they do: it closes its listeners and connections, so that the devices connect where their messages
are stored. When it has renewed its lease it lets them in again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import structlog

from domain.devices.link import DeviceBrokerLink

POLL_INTERVAL_S = 0.1

log = structlog.get_logger("device_lease")


class LeaseLossLinkSuspensionWorker:
    name = "device_lease"

    def __init__(
        self, link: DeviceBrokerLink, lease_remaining_s: Callable[[], float], on_resumed: Callable[[], None] = lambda: None
    ) -> None:
        """`lease_remaining_s`: until the lease ends, by this machine's monotonic clock; 0 or less when it has ended. `on_resumed`
        is called when devices may connect again."""
        self._link = link
        self._lease_remaining_s = lease_remaining_s
        self._on_resumed = on_resumed
        self.suspended = False
        self.suspensions = 0

    async def run(self) -> None:
        while True:
            remaining_s = self._lease_remaining_s()
            if self.suspended is (remaining_s > 0):
                self._switch()
            await asyncio.sleep(max(remaining_s, POLL_INTERVAL_S))

    def _switch(self) -> None:
        if self.suspended:
            self._link.resume()
            self._on_resumed()
            log.info("this instance has renewed its lease; devices can connect again")
        else:
            self._link.suspend()
            self.suspensions += 1
            log.error("this instance cannot renew its lease in the database; its devices are disconnected")
        self.suspended = not self.suspended

    def readiness_errors(self) -> Mapping[str, str]:
        if not self.suspended:
            return {}
        return {"lease": "This instance cannot renew its lease in the database, so devices must connect to another instance."}
