"""Where devices reach the broker, as their credentials say it."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import SplitResult, urlsplit

from app.config.settings import Settings
from domain.devices.firmware import BrokerEndpoint


def broker_endpoint(settings: Settings) -> BrokerEndpoint:
    """Where devices reach the broker. For an external broker, the default is the address that the service itself uses."""
    host = settings.effective_mqtt_public_host
    endpoint = BrokerEndpoint(host, settings.mqtt_port, settings.mqtt_ws_port, settings.mqtt_tls_port)
    if settings.broker in ("embedded", "none"):
        return replace(endpoint, authority_pem=_authority_pem(settings))
    url, explicit = urlsplit(settings.broker), settings.model_fields_set
    if settings.mqtt_public_host is None:
        endpoint = replace(endpoint, host=url.hostname or endpoint.host)
    if url.scheme == "mqtts":
        return endpoint if "mqtt_tls_port" in explicit else replace(endpoint, tls_port=broker_port(url))
    return endpoint if "mqtt_port" in explicit else replace(endpoint, port=broker_port(url))


def _authority_pem(settings: Settings) -> str | None:
    """The certificate that `latchboard tls init` left beside the server's, if it is the one that certified the server."""
    if settings.mqtt_tls_port is None or settings.mqtt_tls_certificate is None:
        return None
    from adapters.crypto.certificates import find_authority  # few use MQTT over TLS

    chain = settings.mqtt_tls_certificate
    try:
        return find_authority(chain.read_bytes(), chain.with_name("ca.pem").read_bytes())
    except (OSError, ValueError):
        return None  # a public authority, or a wrong file: then the broker does not start


def broker_port(url: SplitResult) -> int:
    return url.port or (8883 if url.scheme == "mqtts" else 1883)
