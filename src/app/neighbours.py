"""What another instance did, carried out here as far as it concerns this one: the log is how instances speak to each other.

Each kind of event says which part must look again. Nothing is done from the event itself, only from the database as it is now,
so that one which comes late, or twice, does no harm; and so a thousand of a kind may be settled as one.
"""

from __future__ import annotations

from app.loops.deliveries import DeliveryLoop
from app.services import Bells, Services
from domain.commands.ports import Outcomes
from domain.events.model import Event
from domain.kernel.ids import DeviceId, ExecutionId, WebhookId

MOST_RESULTS = 10_000
"""Results remembered for those who wait. More: who waits looks into the database when the time is up."""


class Neighbours:
    def __init__(self, *, services: Services, bells: Bells, outcomes: Outcomes, deliveries: DeliveryLoop) -> None:
        self._services = services
        self._deliveries = deliveries
        self._bells = bells
        self._outcomes = outcomes
        self._rules: set[DeviceId] = set()
        self._logins: set[DeviceId] = set()
        self._results: set[ExecutionId] = set()
        self._webhooks: set[WebhookId] = set()

    def note(self, event: Event) -> None:
        """An event of another instance. Quick; `settle` does the work."""
        kind, _, _ = event.kind.partition("_")
        device_id = event.device_id
        if event.is_public:
            self._bells.deliveries.ring()
        elif kind in ("command", "approval"):
            self._command(event)
        elif kind == "schedule":
            self._bells.schedules.ring()
            if device_id is not None:
                self._services.plan_outbox.mark(device_id)
        elif kind == "rule" and device_id is not None:
            self._rules.add(device_id)
        elif kind in ("device", "credentials") and device_id is not None:
            self._logins.add(device_id)
            self._bells.upkeep.ring()
        elif kind == "webhook":
            self._webhooks.add(WebhookId(str(event.payload.get("webhookId"))))
            self._bells.deliveries.ring()

    async def settle(self) -> None:
        """What was noted, read anew and carried out. What fails stays noted."""
        while self._rules:
            device_id = next(iter(self._rules))
            await self._services.rules.reload(device_id)
            self._rules.discard(device_id)
        while self._logins:
            device_id = next(iter(self._logins))
            await self._services.admission.settle(device_id)  # what the link does not take is told again by the upkeep
            self._logins.discard(device_id)
        while self._webhooks:
            webhook_id = next(iter(self._webhooks))
            async with self._services.uow.read() as tx:
                self._deliveries.look_again(webhook_id, await tx.webhooks.find(webhook_id))
            self._webhooks.discard(webhook_id)
        while self._results:
            execution_id = next(iter(self._results))
            async with self._services.uow.read() as tx:
                execution = await tx.executions.find(execution_id)
            if execution is not None:
                self._outcomes.announce(execution)
            self._results.discard(execution_id)

    def _command(self, event: Event) -> None:
        self._bells.approvals.ring()
        self._services.dispatch.look_again()
        self._bells.dispatch.ring()
        said = event.payload.get("executionId")
        if event.kind != "command_result" or not isinstance(said, str) or len(self._results) >= MOST_RESULTS:
            return
        if self._outcomes.awaited(ExecutionId(said)):
            self._results.add(ExecutionId(said))
