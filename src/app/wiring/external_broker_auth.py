"""Wires what external brokers may ask about devices; nothing of it exists unless it is set."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from quart import Blueprint

from adapters.http.broker_auth import BrokerAuthRequestGuard, broker_access_blueprint
from adapters.http.core.callers import parse_networks
from app.config.settings import Settings
from app.wiring.composed_application import ComposedApplication
from domain.devices.broker_auth import ExternalBrokerAuthService, ServiceBrokerLogin


def create_broker_access(program: ComposedApplication) -> list[Blueprint]:
    settings = program.settings
    if not settings.answers_brokers:
        return []
    access = ExternalBrokerAuthService(uow=program.services.uow, vault=program.adapters.vault, service=_service_login(settings))
    secret = settings.broker_auth_secret
    guard = BrokerAuthRequestGuard(
        None if secret is None else secret.get_secret_value(), parse_networks(settings.broker_auth_networks)
    )
    return [broker_access_blueprint(access, guard)]


def _service_login(settings: Settings) -> ServiceBrokerLogin | None:
    """None unless the URL of the broker has a password."""
    url = urlsplit(settings.broker)
    return ServiceBrokerLogin(unquote(url.username or "latchboard"), unquote(url.password)) if url.password else None
