"""The HTTP side of the program, joined from its services: every blueprint, the live feed beside them, one ASGI application."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quart import Blueprint, Quart

from adapters.http.accounts import auth_blueprint
from adapters.http.app import create_app
from adapters.http.approvals import approvals_blueprint
from adapters.http.catalog import catalog_blueprint
from adapters.http.commands import commands_blueprint
from adapters.http.dashboard import dashboard_blueprint
from adapters.http.devices import devices_blueprint
from adapters.http.devices_types import device_types_blueprint
from adapters.http.events import events_blueprint
from adapters.http.feed import LiveFeed
from adapters.http.grants import grants_blueprint
from adapters.http.health import health_blueprint
from adapters.http.idempotency import AnswerBook
from adapters.http.keys import keys_blueprint
from adapters.http.proxies import TrustedProxies, networks
from adapters.http.rules import rules_blueprint
from adapters.http.schedules import schedules_blueprint
from adapters.http.security import HttpSettings
from adapters.http.team import projects_blueprint, team_blueprint
from adapters.http.telemetry import telemetry_blueprint
from adapters.http.webhooks import webhooks_blueprint
from app import metrics as figures
from app.version import VERSION
from domain.webhooks.audience import AudienceService
from domain.webhooks.log import DeliveryLog
from domain.webhooks.service import WebhookService

if TYPE_CHECKING:
    from app.compose import Program


def web(program: Program) -> Quart:
    settings, outside, services = program.settings, program.outside, program.services
    origins = tuple(origin.strip() for origin in settings.cors_origins.split(",") if origin.strip())
    proxies = TrustedProxies(networks(settings.trusted_proxies), settings.forwarded_header)
    audience = AudienceService(uow=services.uow, clock=outside.clock)
    return create_app(
        blueprints=_blueprints(program),
        authenticator=services.callers,
        feed=LiveFeed(audience=audience, hub=outside.feed, authenticator=services.callers, clock=outside.clock, proxies=proxies),
        answers=AnswerBook(uow=services.uow, clock=outside.clock, vault=outside.vault),
        refusals=services.refusals,
        proxies=proxies,
        settings=HttpSettings(cors_origins=origins),
        observer=program.metrics.observe,
        version=VERSION,
    )


def _blueprints(program: Program) -> list[Blueprint]:
    s, outside, loops = program.services, program.outside, program.loops
    hooks = WebhookService(
        uow=s.uow,
        clock=outside.clock,
        ids=outside.ids,
        vault=outside.vault,
        courier=outside.courier,
        on_changed=loops.deliveries.cut,
    )
    log = DeliveryLog(uow=s.uow, clock=outside.clock, ids=outside.ids, deliveries=s.deliveries, send=loops.deliveries.send)
    return [
        health_blueprint(checks=program.troubles, metrics=program.metrics.text, metrics_type=figures.CONTENT_TYPE),
        auth_blueprint(sessions=s.sessions, passwords=s.passwords),
        team_blueprint(team=s.team),
        projects_blueprint(projects=s.projects),
        keys_blueprint(keys=s.keys, uow=s.uow),
        catalog_blueprint(),
        dashboard_blueprint(),
        devices_blueprint(s.devices, s.credentials, s.control),
        device_types_blueprint(s.device_types),
        commands_blueprint(s.commands, s.definitions, s.control),
        schedules_blueprint(s.schedules),
        rules_blueprint(s.rules, s.trials),
        grants_blueprint(s.grants, s.access),
        approvals_blueprint(s.approvals),
        telemetry_blueprint(s.telemetry, s.stretches),
        events_blueprint(s.events),
        webhooks_blueprint(webhooks=hooks, log=log),
    ]
