"""Creates the Home Assistant worker, if it is configured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from app.config.settings import Settings
from app.runtime.metrics_registry import MetricsRegistry
from app.wiring.adapters import ServiceAdapters
from app.wiring.domain_services import DomainServices
from domain.feed.snapshot import FeedSnapshotAndReplayService

if TYPE_CHECKING:
    from app.workers.homeassistant import HomeAssistantWorker


def create_homeassistant_workers(
    settings: Settings, outside: ServiceAdapters, services: DomainServices, metrics: MetricsRegistry
) -> tuple[HomeAssistantWorker, ...]:
    """Empty if Home Assistant is not configured, or if this instance has no broker."""
    url, key = settings.homeassistant, settings.homeassistant_key
    if url is None or key is None or not settings.has_broker:
        return ()
    from adapters.mqtt.homeassistant import HomeAssistantBrokerSettings, HomeAssistantMqttClient
    from app.workers.homeassistant import HomeAssistantWorker
    from domain.homeassistant.bridge import HomeAssistantBridge

    bridge = HomeAssistantBridge(
        uow=services.uow,
        clock=outside.clock,
        audience=FeedSnapshotAndReplayService(uow=services.uow, clock=outside.clock),
        authenticator=services.callers,
        commands=services.commands,
        latest_values=outside.engine.engine,
        secret=key.get_secret_value(),
        discovery_prefix=settings.homeassistant_prefix,
    )
    address = urlsplit(url.get_secret_value())
    tls = address.scheme == "mqtts"
    user, password = (None if part is None else unquote(part) for part in (address.username, address.password))
    port = address.port or (8883 if tls else 1883)
    broker = HomeAssistantBrokerSettings(address.hostname or "127.0.0.1", port, user, password, tls)
    worker = HomeAssistantWorker(bridge=bridge, broker=HomeAssistantMqttClient(broker), hub=outside.feed)
    register_metrics(metrics, worker.metrics)
    return (worker,)


def register_metrics(metrics: MetricsRegistry, read: Callable[[], Mapping[str, float]]) -> None:
    gauges = {"connected": "1 while the bridge is connected to the broker.", "devices": "Devices that Home Assistant shows."}
    counters = {
        "connections": "Connections to the broker of Home Assistant.",
        "published": "Messages published to Home Assistant.",
        "commands": "Commands from Home Assistant.",
        "refused": "Commands from Home Assistant that were refused.",
        "ignored": "Messages from Home Assistant that are not commands.",
    }
    for name, text in gauges.items():
        metrics.register_gauge(f"homeassistant_{name}", text, partial(_read_one, read, name))
    for name, text in counters.items():
        metrics.register_counter(f"homeassistant_{name}", text, partial(_read_one, read, name))


def _read_one(read: Callable[[], Mapping[str, float]], name: str) -> float:
    return read()[name]
