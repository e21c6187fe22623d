"""The parts that prove the event log."""

from __future__ import annotations

from adapters.crypto.tokens import Ed25519AuditSealKeyProvider
from adapters.storage.sql.unit_of_work import SqlUnitOfWork
from app.runtime.metrics_registry import MetricsRegistry, age_s
from app.wiring.adapters import ServiceAdapters
from app.wiring.shared_ports import shared_ports
from app.workers.periodic import AuditSealWorker
from domain.audit.export import AuditExportGenerator
from domain.audit.seals import AuditSealService
from domain.kernel.clock import Clock


class AuditServices:
    def __init__(self, uow: SqlUnitOfWork, adapters: ServiceAdapters) -> None:
        self._clock: Clock = adapters.clock
        self.exporter = AuditExportGenerator(**shared_ports(uow, adapters))
        self.seals = AuditSealService(**shared_ports(uow, adapters), keys=Ed25519AuditSealKeyProvider(adapters.key_ring))

    def create_worker(self) -> AuditSealWorker:
        return AuditSealWorker(seals=self.seals, clock=self._clock)

    def register_metrics(self, metrics: MetricsRegistry) -> None:
        metrics.register_counter("audit_seals", "Accounts whose event log was sealed.", lambda: self.seals.sealed)
        metrics.register_gauge(
            "audit_seal_age_seconds",
            "Time since the event log was last sealed; it is done every hour.",
            lambda: age_s(self.seals.last_sealed_ms, self._clock.now_ms()),
        )
