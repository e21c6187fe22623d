"""Creates the Home Assistant worker, if it is configured."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from app.config.settings import Settings
from app.runtime.metrics import Metrics
from app.wiring.adapters import Adapters
from app.wiring.services import Services
from app.workers.homeassistant import HomeAssistantWorker
from domain.feed.audience import AudienceService
from domain.homeassistant.bridge import HomeAssistantBridge


def create_homeassistant_workers(
    settings: Settings, outside: Adapters, services: Services, metrics: Metrics
) -> tuple[HomeAssistantWorker, ...]:
    """Empty if Home Assistant is not configured, or if this instance has no broker."""
    url, key = settings.homeassistant, settings.homeassistant_key
    if url is None or key is None or not settings.has_broker:
        return ()
    from adapters.mqtt.homeassistant_client import (  # imports an MQTT client that is needed for nothing else
        BridgeClient,
        HomeAssistantBrokerSettings,
    )

    bridge = HomeAssistantBridge(
        uow=services.uow,
        clock=outside.clock,
        audience=AudienceService(uow=services.uow, clock=outside.clock),
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
    worker = HomeAssistantWorker(bridge=bridge, broker=BridgeClient(broker), hub=outside.feed)
    metrics.register_gauge("homeassistant", "Messages to Home Assistant, and commands from it.", worker.metrics)
    return (worker,)
