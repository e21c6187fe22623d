"""Describes how phones and devices reach this service, from its settings and the machine's address."""

from __future__ import annotations

from adapters.http.api.service_addresses import NetworkProblemResponse, NetworkResponse
from app.config.reachable_server_address import is_loopback, reachable_address
from app.config.settings import Settings
from app.config.url_checks import is_ip_address
from domain.devices.firmware import BrokerEndpoint

ALL_INTERFACES = "0.0.0.0"  # noqa: S104 - written into an advice
HTTP_LOOPBACK_ONLY = NetworkProblemResponse(
    code="HTTP_LOOPBACK_ONLY",
    message="HTTP listens on a loopback address, so no other machine reaches the dashboard.",
    settings=[f"LATCHBOARD_HTTP_HOST={ALL_INTERFACES}"],
)
MQTT_LOOPBACK_ONLY = NetworkProblemResponse(
    code="MQTT_LOOPBACK_ONLY",
    message="The broker listens on a loopback address, so no device of the network reaches it.",
    settings=[f"LATCHBOARD_MQTT_HOST={ALL_INTERFACES}"],
)


def describe_network(settings: Settings, endpoint: BrokerEndpoint) -> NetworkResponse:
    """`endpoint`: what device credentials name."""
    http_problems = [HTTP_LOOPBACK_ONLY] if settings.public_url is None and is_loopback(settings.http_host) else []
    return NetworkResponse(
        dashboard_url=settings.public_url or _http_url(settings),
        mqtt_host=endpoint.host,
        mqtt_port=endpoint.port,
        mqtt_ws_port=endpoint.ws_port,
        mqtt_tls_port=endpoint.tls_port,
        problems=[*http_problems, *_mqtt_problems(settings, endpoint)],
    )


def _http_url(settings: Settings) -> str | None:
    host = reachable_address(settings.http_host)
    return None if is_loopback(host) else f"http://{f'[{host}]' if ':' in host else host}:{settings.http_port}"


def _mqtt_problems(settings: Settings, endpoint: BrokerEndpoint) -> list[NetworkProblemResponse]:
    found = [MQTT_LOOPBACK_ONLY] if settings.broker == "embedded" and is_loopback(settings.mqtt_host) else []
    own = reachable_address(ALL_INTERFACES)
    advice = f"LATCHBOARD_MQTT_PUBLIC_HOST={'<this machine in the network>' if is_loopback(own) else own}"
    if is_loopback(endpoint.host) and (settings.mqtt_public_host is not None or not found):
        message = "The host in device credentials is a loopback address: devices would connect to themselves."
        found.append(NetworkProblemResponse(code="MQTT_HOST_LOOPBACK", message=message, settings=[advice]))
    elif not is_ip_address(endpoint.host) and "." not in endpoint.host.rstrip(".") and not is_loopback(endpoint.host):
        message = f"Devices cannot resolve {endpoint.host}, a bare host name. Use an address, a name in DNS or one under .local."
        found.append(NetworkProblemResponse(code="MQTT_HOST_BARE_NAME", message=message, settings=[advice]))
    return found
