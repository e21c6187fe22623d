"""Joins Home Assistant's broker to the devices, where that is switched on."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from app.loops.homeassistant import HomeAssistantLoop
from app.metrics import Metrics
from app.outside import Outside
from app.services import Services
from app.settings import Settings
from domain.telemetry.homeassistant import BridgeService
from domain.webhooks.audience import AudienceService


def home_assistant(
    settings: Settings, outside: Outside, services: Services, metrics: Metrics
) -> tuple[HomeAssistantLoop, ...]:
    """Empty where it is off, or where another instance holds the devices."""
    url, key = settings.homeassistant, settings.homeassistant_key
    if url is None or key is None or not settings.holds_devices:
        return ()
    from adapters.mqtt.bridge import BridgePeer, Peer  # an MQTT client, which nobody else needs beside the built-in broker

    bridge = BridgeService(
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
    peer = Peer(place.hostname or "127.0.0.1", place.port or (8883 if tls else 1883), user, password, tls)
    loop = HomeAssistantLoop(bridge=bridge, peer=BridgePeer(peer), hub=outside.feed)
    metrics.read("homeassistant", "What Home Assistant was told, and what it asked for.", loop.figures)
    return (loop,)
