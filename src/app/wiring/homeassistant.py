"""Joins Home Assistant's broker to the devices, where that is switched on."""

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
    """Empty where it is off, or where another instance holds the devices."""
    url, key = settings.homeassistant, settings.homeassistant_key
    if url is None or key is None or not settings.has_broker:
        return ()
    from adapters.mqtt.homeassistant_client import (  # an MQTT client, which nobody else needs beside the built-in broker
        BridgeClient,
        HomeAssistantBrokerSettings,
    )

    bridge = HomeAssistantBridge(
        uow=services.uow,
        clock=outside.clock,
        audience=AudienceService(uow=services.uow, clock=outside.clock),
        callers=services.callers,
        commands=services.commands,
        values=outside.engine.engine,
        secret=key.get_secret_value(),
        discovery=settings.homeassistant_prefix,
    )
    place = urlsplit(url.get_secret_value())
    tls = place.scheme == "mqtts"
    user, password = (None if part is None else unquote(part) for part in (place.username, place.password))
    peer = HomeAssistantBrokerSettings(place.hostname or "127.0.0.1", place.port or (8883 if tls else 1883), user, password, tls)
    loop = HomeAssistantWorker(bridge=bridge, peer=BridgeClient(peer), hub=outside.feed)
    metrics.register_gauge("homeassistant", "What Home Assistant was told, and what it asked for.", loop.metrics)
    return (loop,)
