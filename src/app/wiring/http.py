"""The HTTP side of the program, joined from its services: every blueprint, the live feed beside them, one ASGI application."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import unquote, urlsplit

from quart import Blueprint, Quart

from adapters.firmware_sources import ExampleFirmwareSourceReader
from adapters.http.api.approvals import approval_links_blueprint, approvals_blueprint
from adapters.http.api.authentication import auth_blueprint
from adapters.http.api.commands import commands_blueprint
from adapters.http.api.device_setup import catalog_blueprint, credentials_blueprint
from adapters.http.api.device_types import device_types_blueprint
from adapters.http.api.devices import bulk_registration_blueprint, devices_blueprint
from adapters.http.api.events import events_blueprint
from adapters.http.api.fleet import fleet_blueprint
from adapters.http.api.grants import grants_blueprint
from adapters.http.api.groups import groups_blueprint
from adapters.http.api.installation import (
    NetworkProblemResponse,
    NetworkResponse,
    cluster_blueprint,
    health_blueprint,
    network_blueprint,
)
from adapters.http.api.invitations import invitations_blueprint
from adapters.http.api.keys import keys_blueprint
from adapters.http.api.notifications import notifications_blueprint
from adapters.http.api.projects import projects_blueprint
from adapters.http.api.provisioning import provisioning_blueprint
from adapters.http.api.rules import rules_blueprint
from adapters.http.api.schedules import schedules_blueprint
from adapters.http.api.second_factor import passkeys_blueprint, second_factor_blueprint
from adapters.http.api.service_sessions import service_sessions_blueprint
from adapters.http.api.team import team_blueprint
from adapters.http.api.telemetry import telemetry_blueprint
from adapters.http.api.webhooks import webhooks_blueprint
from adapters.http.app import create_app, mount
from adapters.http.broker_auth import BrokerAuthRequestGuard, broker_access_blueprint
from adapters.http.core.callers import AuthenticatorPort, TrustedProxies, parse_networks
from adapters.http.core.idempotency import IdempotencyStore
from adapters.http.core.middleware import JSON_HEADERS, HttpMiddlewareSettings
from adapters.http.core.operation import API_DEPENDENCIES
from adapters.http.core.turns import AccountTurns, TurnKind
from adapters.http.dashboard.oidc_routes import oidc_blueprint
from adapters.http.dashboard.routes import dashboard_blueprint
from adapters.http.dashboard.session_routes import dashboard_session_blueprint, first_run_blueprint
from adapters.http.documents.routes import asyncapi_blueprint, openapi_blueprint
from adapters.http.feed.endpoint import FeedConnectionLimiter, FeedEndpoint
from adapters.http.feed.stream import FeedDependencies
from adapters.http.server.limits import AddressBans, HttpConnectionLimiter
from adapters.http.unlock_page import unlock_page_blueprint
from adapters.mcp.endpoint import McpEndpoint
from app.config.checks import is_ip_address, is_loopback, reachable_address
from app.config.settings import Settings
from app.runtime import metrics as figures
from app.runtime import start
from app.version import VERSION
from app.wiring.program import ComposedApplication
from app.wiring.services import DomainServices
from domain.devices.broker_auth import ExternalBrokerAuthService, ServiceBrokerLogin
from domain.devices.credentials import FirmwareProjectService
from domain.devices.firmware import BrokerEndpoint
from domain.feed.interest import no_other_instances
from domain.feed.snapshot import FeedSnapshotAndReplayService
from domain.fleet_file.model import FleetAfterApplyWork, FleetFileWriteServices
from domain.fleet_file.service import FleetFileService
from domain.groups.bulk_actions import GroupBulkActionService
from domain.groups.service import GroupsTx
from domain.kernel.caller import Role, SessionCaller, require_role
from domain.kernel.unit_of_work import JoinedUnitOfWork
from domain.partitions.overview import ClusterOverview, ClusterOverviewService
from domain.team.service_sessions import ServiceSessionTokenService
from domain.telemetry.replay import FeedReadingReplayService
from domain.webhooks.delivery_log import WebhookDeliveryLogService
from domain.webhooks.service import WebhookService

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
STORE_TIME_OVERLAP_S = 30
"""Several instances store readings at once: one may commit a batch this much later than others that have its store time."""


def create_http_app(program: ComposedApplication) -> Quart:
    settings, adapters, services = program.settings, program.adapters, program.services
    origins = tuple(origin.strip() for origin in settings.cors_origins.split(",") if origin.strip())
    proxies = TrustedProxies(parse_networks(settings.trusted_proxies), settings.forwarded_header)
    program.feed_endpoint = _create_feed(program, proxies, (*origins, _origin_of(settings.effective_public_url)))
    app = create_app(
        blueprints=[
            *_create_blueprints(program),
            openapi_blueprint(version=VERSION, clock=adapters.clock),
            asyncapi_blueprint(_create_asyncapi_document),
        ],
        authenticator=services.callers,
        feed=program.feed_endpoint,
        idempotency_store=IdempotencyStore(**services.shared, vault=adapters.vault, process_id=adapters.process_id),
        denial_log=services.denial_log,
        proxies=proxies,
        settings=HttpMiddlewareSettings(
            cors_origins=origins, hsts=settings.tls_at_proxy, hsts_subdomains=settings.hsts_subdomains
        ),
        observer=program.metrics.observe_request,
        life=adapters.life,
        clock=adapters.clock,
    )
    agents = McpEndpoint(
        api=app, check_key=partial(_authenticate_agent, services.callers, proxies), version=VERSION, headers=JSON_HEADERS
    )
    mount(app, agents)
    app.after_serving(agents.stop)
    _register_turns(program, app)
    return app


def _register_turns(program: ComposedApplication, app: Quart) -> None:
    turns: Mapping[TurnKind, AccountTurns] = app.extensions[API_DEPENDENCIES].turns
    program.metrics.register_gauge(
        "turns_waiting",
        "Requests that wait for their account's turn at long work.",
        lambda: {kind.value: each.waiting_count for kind, each in turns.items()},
        label="kind",
    )
    program.metrics.register_counter(
        "turns_refused",
        "Requests refused because too many of their account waited for a turn.",
        lambda: {kind.value: each.refused_count for kind, each in turns.items()},
        label="kind",
    )


async def _authenticate_agent(callers: AuthenticatorPort, proxies: TrustedProxies, key: str, scope: dict[str, Any]) -> None:
    header, (peer, *_) = proxies.header.lower().encode(), scope.get("client") or ("",)
    lines = [value.decode("latin-1") for name, value in scope["headers"] if name == header]
    await callers.authenticate_key(key, proxies.client_address(peer, lines))


def _create_asyncapi_document() -> dict[str, Any]:
    from app.wiring.asyncapi_document import create_asyncapi_document

    return create_asyncapi_document()


def create_connection_limiter(settings: Settings) -> HttpConnectionLimiter:
    total = settings.http_connections or start.default_http_connections()
    return HttpConnectionLimiter(
        bans=AddressBans(ban_after=settings.ban_after, ban_max_s=float(settings.ban_max_seconds)),
        total=total,
        per_address=settings.http_connections_per_address or max(8, total // 2),
        unlimited=settings.unlimited_networks,
    )


def _create_feed(program: ComposedApplication, proxies: TrustedProxies, origins: tuple[str, ...]) -> FeedEndpoint:
    settings, adapters, services = program.settings, program.adapters, program.services
    half = max(4, (settings.http_connections or start.default_http_connections()) // 2)  # the rest is for requests
    limiter = FeedConnectionLimiter(
        total=half,
        unauthenticated=min(settings.feed_pending, max(4, half // 2)),
        unauthenticated_per_address=settings.feed_pending_per_address,
        unlimited=settings.unlimited_networks,
    )
    audience = FeedSnapshotAndReplayService(**services.shared)
    cluster = program.workers.cluster
    missed_readings = FeedReadingReplayService(
        uow=services.uow,
        engine=adapters.engine.engine,
        overlap_s=0 if cluster is None else STORE_TIME_OVERLAP_S,
        moved_before_ms=services.stored_telemetry.stored.moved_before_ms,
    )
    shared_feed = program.workers.shared_feed
    confirm_interest = no_other_instances if shared_feed is None else shared_feed.confirm_interest
    return FeedEndpoint(
        sources=FeedDependencies(audience, adapters.feed, missed_readings, services.bounded_commit_lock, confirm_interest),
        authenticator=services.callers,
        clock=adapters.clock,
        proxies=proxies,
        limiter=limiter,
        origins=origins,
    )


def _origin_of(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _create_blueprints(program: ComposedApplication) -> list[Blueprint]:
    s, adapters, workers = program.services, program.adapters, program.workers
    webhooks = WebhookService(
        **s.creating, vault=adapters.vault, courier=adapters.courier, on_changed=workers.webhook_delivery.cancel_webhook
    )
    firmware = FirmwareProjectService(
        uow=s.uow,
        endpoint=s.credential_issuer.endpoint,
        sources=ExampleFirmwareSourceReader(),
        ota_password=lambda device_id: adapters.digest.hmac_sha256("esphome-ota", device_id).hex()[:32],
    )
    log = WebhookDeliveryLogService(**s.creating, deliveries=s.deliveries, send=workers.webhook_delivery.send_manual)
    return [
        *_operation_blueprints(program),
        *_sign_in_blueprints(program),
        team_blueprint(team=s.team),
        projects_blueprint(projects=s.projects),
        keys_blueprint(keys=s.keys, grants=s.grants),
        catalog_blueprint(),
        dashboard_blueprint(),
        devices_blueprint(s.devices, s.control),
        *_fleet_blueprints(program, webhooks),
        credentials_blueprint(s.credentials, firmware),
        device_types_blueprint(s.device_types),
        commands_blueprint(s.commands, s.submission_waiter, s.definitions, s.control, s.cancellation),
        notifications_blueprint(s.notifications.service, s.notifications.push_keys),
        schedules_blueprint(s.schedules, s.schedule_calendar),
        rules_blueprint(s.rules, s.stored_telemetry.rule_dry_runs),
        grants_blueprint(s.grants, s.access_explanations),
        approvals_blueprint(s.approvals),
        approval_links_blueprint(s.notifications.links),
        telemetry_blueprint(s.stored_telemetry.queries, s.stored_telemetry.downsampling),
        events_blueprint(s.events, s.audit_exporter),
        webhooks_blueprint(webhooks=webhooks, log=log, recoveries=s.recoveries),
    ]


def _operation_blueprints(program: ComposedApplication) -> list[Blueprint]:
    return [
        health_blueprint(
            checks=program.readiness_errors,
            device_checks=program.device_readiness_errors,
            warnings=program.readiness_warnings,
            metrics=program.metrics.render,
            metrics_type=figures.CONTENT_TYPE,
        ),
        network_blueprint(
            lambda: _describe_network(
                program.settings, program.services.credential_issuer.endpoint, program.services.clock_watch.warning()
            )
        ),
        cluster_blueprint(_create_cluster_overview(program)),
        *_broker_access_blueprints(program),
    ]


def _fleet_blueprints(program: ComposedApplication, webhooks: WebhookService) -> list[Blueprint]:
    s = program.services
    actions = GroupBulkActionService(
        **s.shared,
        groups=s.groups,
        commands=s.commands,
        schedules=s.schedules,
        rules=s.rules,
        engine_commit_lock=s.bounded_commit_lock,
    )
    return [
        groups_blueprint(s.groups, actions, s.group_grants),
        bulk_registration_blueprint(s.bulk_registration),
        provisioning_blueprint(s.provisioning_codes, s.device_claims),
        fleet_blueprint(_create_fleet_file_service(s, webhooks)),
    ]


def _sign_in_blueprints(program: ComposedApplication) -> list[Blueprint]:
    s = program.services
    oidc = None if s.sign_in.oidc is None else s.sign_in.oidc.sign_in
    service_sessions = ServiceSessionTokenService(**s.creating, digest=program.adapters.digest)
    return [
        service_sessions_blueprint(service_sessions),
        auth_blueprint(logins=s.logins, unlock=s.sign_in.unlock, sessions=s.sessions, passwords=s.passwords),
        second_factor_blueprint(logins=s.logins, second_factors=s.sign_in.second_factors, step_ups=s.sign_in.step_ups),
        invitations_blueprint(invitations=s.sign_in.invitations, acceptance=s.sign_in.acceptance),
        passkeys_blueprint(passkeys=s.sign_in.passkeys, sign_ins=s.sign_in.passkey_sign_ins),
        unlock_page_blueprint(unlock=s.sign_in.unlock),
        first_run_blueprint(s.sign_in.first_run, is_tls=program.settings.tls_at_proxy),
        oidc_blueprint(oidc=oidc, is_tls=program.settings.tls_at_proxy),
        dashboard_session_blueprint(
            logins=s.logins,
            passkeys=s.sign_in.passkey_sign_ins,
            sessions=s.sessions,
            is_tls=program.settings.tls_at_proxy,
            provider_sign_out_url=oidc.provider.sign_out_url if oidc is not None and program.settings.oidc_sign_out else None,
        ),
    ]


def _create_fleet_file_service(services: DomainServices, webhooks: WebhookService) -> FleetFileService:
    """The services of the single calls, once more for each transaction that they share."""

    def make_writers(uow: JoinedUnitOfWork[GroupsTx], postponed: FleetAfterApplyWork) -> FleetFileWriteServices:
        joined: dict[str, Any] = {"uow": uow}
        return FleetFileWriteServices(
            projects=replace(services.projects, **joined),
            device_types=replace(services.device_types, **joined),
            devices=replace(services.devices, **joined, credential_sync=postponed, erasure=postponed),
            issuer=services.credential_issuer,
            definitions=replace(services.definitions, **joined),
            schedules=services.schedules.with_unit_of_work(uow),
            rules=services.rules.with_unit_of_work(uow),
            groups=replace(services.groups, **joined),
            keys=replace(services.keys, **joined),
            grants=replace(services.grants, **joined),
            group_grants=replace(services.group_grants, **joined),
            webhooks=replace(webhooks, **joined),
        )

    return FleetFileService(
        **services.shared,
        make_writers=make_writers,
        webhooks=webhooks,
        projects=services.projects,
        device_types=services.device_types,
        credential_sync=services.credential_sync,
        erasure=services.device_erasure,
        engine_commit_lock=services.bounded_commit_lock,
    )


def _create_cluster_overview(program: ComposedApplication) -> Callable[[SessionCaller], Awaitable[ClusterOverview | None]]:
    cluster, workers = program.adapters.cluster, program.workers.cluster
    if cluster is None or workers is None:
        return _without_cluster
    return ClusterOverviewService(
        uow=program.services.uow,
        instance=cluster.instance,
        state=workers.partitions,
        log=cluster.inbound_log,
        problems=workers.stopped_partitions,
    ).describe


async def _without_cluster(caller: SessionCaller) -> None:
    """Raises PermissionDenied `ROLE_REQUIRED`."""
    require_role(caller, Role.ADMIN)


def _broker_access_blueprints(program: ComposedApplication) -> list[Blueprint]:
    """What external brokers may ask about devices; nothing of it exists unless it is set."""
    settings = program.settings
    if not settings.answers_brokers:
        return []
    refusals = program.services.broker_refusals
    access = ExternalBrokerAuthService(
        uow=program.services.uow,
        vault=program.adapters.vault,
        service=_service_login(settings),
        tell_refused=lambda device, reason: refusals.count(device.device_no, reason, 1),
    )
    secret = settings.broker_auth_secret
    guard = BrokerAuthRequestGuard(
        secret=None if secret is None else secret.get_secret_value(), networks=parse_networks(settings.broker_auth_networks)
    )
    return [broker_access_blueprint(access, guard)]


def _service_login(settings: Settings) -> ServiceBrokerLogin | None:
    """None unless the URL of the broker has a password."""
    url = urlsplit(settings.broker)
    return ServiceBrokerLogin(unquote(url.username or "latchboard"), unquote(url.password)) if url.password else None


def _describe_network(settings: Settings, endpoint: BrokerEndpoint, clock_warning: str | None) -> NetworkResponse:
    """How phones and devices reach this service, from its settings and the machine's address. `endpoint`: what device credentials
    name."""
    clock = [] if clock_warning is None else [NetworkProblemResponse(code="CLOCK_DOUBTED", message=clock_warning, settings=[])]
    http_problems = [HTTP_LOOPBACK_ONLY] if settings.public_url is None and is_loopback(settings.http_host) else []
    return NetworkResponse(
        dashboard_url=settings.public_url or _http_url(settings),
        mqtt_host=endpoint.host,
        mqtt_port=endpoint.port,
        mqtt_ws_port=endpoint.ws_port,
        mqtt_tls_port=endpoint.tls_port,
        problems=[*clock, *http_problems, *_mqtt_problems(settings, endpoint)],
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
