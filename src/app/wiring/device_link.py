"""Constructs the link to the devices that the settings select: none, the embedded broker, or an external one."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from adapters.mqtt.links import NullDeviceLink
from app.config.settings import Settings
from app.runtime import open_file_limit_and_shares
from app.runtime.startup_errors import StartupError
from app.wiring.device_broker_endpoint import broker_port
from app.wiring.native_or_reference_components import NativeOrReferenceComponents
from domain.devices.link import DeviceBrokerLink
from domain.kernel.clock import Clock

if TYPE_CHECKING:
    from adapters.mqtt.embedded import BrokerLimits


def create_device_link(
    settings: Settings, clock: Clock, engine: NativeOrReferenceComponents, front: str = ""
) -> DeviceBrokerLink:
    """`front` names this instance of a cluster."""
    if not settings.has_broker:
        return NullDeviceLink()
    if settings.broker == "embedded":
        return _create_embedded_link(settings, front)
    return _create_external_link(settings, clock, engine, front)


def _create_external_link(settings: Settings, clock: Clock, engine: NativeOrReferenceComponents, front: str) -> DeviceBrokerLink:
    from adapters.mqtt.external import MosquittoDeviceLink
    from adapters.mqtt.external_connection import MosquittoConnectionSettings
    from adapters.mqtt.external_sessions import shared_by_cluster
    from adapters.mqtt.mosquitto_files import MosquittoCredentialStore, MosquittoFilePaths

    url = urlsplit(settings.broker)
    user, password = unquote(url.username or "latchboard"), unquote(url.password or "")
    broker = MosquittoConnectionSettings(url.hostname or "127.0.0.1", broker_port(url), user, password, tls=url.scheme == "mqtts")
    files = (settings.mosquitto_password_file, settings.mosquitto_acl_file, settings.mosquitto_pid_file)
    provisioner = None
    if files[0] is not None and files[1] is not None and files[2] is not None:
        provisioner = MosquittoCredentialStore(MosquittoFilePaths(files[0], files[1], files[2]), user, password)
    shared = None if settings.cluster is None else shared_by_cluster(broker, settings.cluster_partitions)
    return MosquittoDeviceLink(broker, clock, engine.make_batch, provisioner, settings.mosquitto_pid_file, shared, front)


def _create_embedded_link(settings: Settings, front: str) -> DeviceBrokerLink:
    try:
        from adapters.mqtt.embedded import BrokerListenAddress, EmbeddedBrokerSettings, EmbeddedDeviceLink
    except ImportError as error:
        raise StartupError(
            f"The embedded broker cannot be used: {error}. Build it with `make setup`, "
            "or set LATCHBOARD_BROKER to the URL of an external one."
        ) from None
    listeners = [
        BrokerListenAddress("tcp", settings.mqtt_host, settings.mqtt_port),
        BrokerListenAddress("ws", settings.mqtt_host, settings.mqtt_ws_port),
    ]
    if settings.mqtt_tls_port is not None:
        listeners.append(BrokerListenAddress("tcp", settings.mqtt_host, settings.mqtt_tls_port, tls=True))
    certificate, key, client_ca = settings.mqtt_tls_certificate, settings.mqtt_tls_key, settings.mqtt_client_ca
    broker = EmbeddedBrokerSettings(tuple(listeners), certificate, key, client_ca, broker_limits(settings))
    return EmbeddedDeviceLink(broker, front=front)


def broker_limits(settings: Settings) -> BrokerLimits:
    from adapters.mqtt.embedded import BrokerLimits, UnauthenticatedConnectionLimits

    connections = settings.mqtt_connections or open_file_limit_and_shares.default_mqtt_connections()
    pending = settings.mqtt_pending or max(8, connections // 4)
    networks = settings.unlimited_networks(settings.trusted_proxies)
    return BrokerLimits(
        max_connections=connections,
        rate_per_second=settings.ingest_limit,
        rate_burst=max(1.0, 2 * settings.ingest_limit),
        pending=UnauthenticatedConnectionLimits(
            max_pending=pending,
            max_pending_per_address=settings.mqtt_pending_per_address or max(8, pending // 2),
            ban_after=settings.ban_after,
            max_ban_s=float(settings.ban_max_seconds),
            trusted_networks=[(network.network_address, network.prefixlen) for network in networks],
        ),
    )
