"""Joins the parts of the program in order: adapters, services, workers, HTTP application, metrics. `adapters.py`, `services.py`,
`workers.py`, `http.py` and `metrics.py` make what their name says. Nothing is opened here: `lifecycle.py` starts and stops the
parts. It is a file of its own because the HTTP application and the metrics read the program (`program.py`) that it composes.
"""

from __future__ import annotations

from app.config.settings import Settings
from app.runtime.metrics import MetricsRegistry
from app.runtime.processes import WorkerProcessContext
from app.runtime.supervisor import WorkerSupervisor
from app.wiring.adapters import ServiceAdapters
from app.wiring.http import create_connection_limiter, create_http_app
from app.wiring.metrics import register_metrics
from app.wiring.program import ComposedApplication
from app.wiring.services import DomainServices
from app.wiring.workers import Workers
from app.workers.due import WakeEvents


def compose(settings: Settings, worker: WorkerProcessContext | None = None) -> ComposedApplication:
    """Raises SettingsError, StartupError, Unavailable, DatabaseUnusableError."""
    wake_events = WakeEvents()
    adapters = ServiceAdapters(settings, on_interest=wake_events.feed_interest.set, worker=worker)
    services = DomainServices(settings, adapters, wake_events)
    workers = Workers(settings, adapters, services, wake_events)
    supervisor = WorkerSupervisor(workers.in_start_order(holds_devices=adapters.is_leader))
    connections = create_connection_limiter(settings)
    program = ComposedApplication(settings, adapters, services, workers, supervisor, MetricsRegistry(), connections, worker)
    program.http_app = create_http_app(program)
    register_metrics(program)
    return program
