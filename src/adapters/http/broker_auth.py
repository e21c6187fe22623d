"""The questions of external brokers about logins and topics, each in the broker's own form: EMQX, RabbitMQ, VerneMQ and
mosquitto-go-auth. What cannot be answered is refused, never left open."""

from __future__ import annotations

import hmac
import json
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from quart import Blueprint, Response, request

from adapters.http.core.callers import Network, is_in_networks
from adapters.http.core.parsing import parse_json_object
from adapters.http.server.limits import AddressBans
from domain.devices.broker_auth import BrokerAction, ExternalBrokerAuthService
from domain.devices.model import RefusalReason
from domain.kernel.dataclasses import service
from domain.kernel.errors import DomainError, Unavailable

BAN_AFTER = 20
"""Wrong passwords in a row from one address, as at the built-in broker's doors."""
MAX_BAN_S = 300.0
GO_AUTH_WRITE = "2"
"""`acc` of mosquitto-go-auth: 1 to read, 2 to write, 3 for both, 4 to subscribe."""
GO_AUTH_BOTH = "3"

_PROXY_HEADERS = ("Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-IP")
_RABBITMQ_QUEUE = re.compile(r"mqtt-subscription-(?P<client_id>.*)qos[01]", re.DOTALL)

Fields = Mapping[str, str]
Decide = Callable[[Fields], Awaitable[bool]]
Answer = Callable[[bool | None], Response]
"""None: it is not known, and nothing may be allowed."""


@service
class BrokerAuthRequestGuard:
    """Who may ask, and how often a device's address may be wrong. A broker shows the secret as a bearer token, or asks from one
    of the networks."""

    secret: str | None
    networks: Sequence[Network]
    _bans: AddressBans = field(default_factory=lambda: AddressBans(ban_after=BAN_AFTER, ban_max_s=MAX_BAN_S), init=False)

    def admits(self, authorization: str | None, address: str, *, was_forwarded: bool) -> bool:
        """`address`: of the connection. What a proxy has passed on may come from anywhere, so only the secret admits it."""
        scheme, _, shown = (authorization or "").partition(" ")
        if self.secret is not None and scheme.lower() == "bearer":
            return hmac.compare_digest(shown.strip().encode(), self.secret.encode())
        return not was_forwarded and is_in_networks(address, self.networks)

    def is_banned(self, device_address: str) -> bool:
        return bool(device_address) and self._bans.is_banned(device_address, time.monotonic())

    def record(self, device_address: str, *, was_right: bool) -> None:
        """`device_address`: as the broker names it; empty if it does not."""
        if device_address:
            (self._bans.record_success if was_right else self._bans.record_failure)(device_address, time.monotonic())


@service
class BrokerAuthFormTranslator:
    """Decides what the brokers ask, whatever their form."""

    access: ExternalBrokerAuthService
    guard: BrokerAuthRequestGuard

    async def may_connect(self, fields: Fields) -> bool:
        address = fields.get("peerhost") or fields.get("peer_addr") or fields.get("ip") or ""
        if self.guard.is_banned(address):
            return False
        refusal = await self.access.why_refused(fields.get("username", ""), fields.get("password", ""), _client_id(fields))
        self.guard.record(address, was_right=refusal is not RefusalReason.WRONG_PASSWORD)
        return refusal is None

    async def is_service(self, fields: Fields) -> bool:
        return self.access.is_service(fields.get("username", ""))

    async def is_known(self, fields: Fields) -> bool:
        return self._fits_client(fields) and (
            await self.is_service(fields) or await self.access.is_active(fields.get("username", ""))
        )

    async def emqx_topic(self, fields: Fields) -> bool:
        return await self._may(fields, fields.get("action") == BrokerAction.PUBLISH, fields.get("topic", ""))

    async def go_auth_topic(self, fields: Fields) -> bool:
        kind, topic = fields.get("acc", ""), fields.get("topic", "")
        if kind == GO_AUTH_BOTH:
            return await self._may(fields, True, topic) and await self._may(fields, False, topic)
        return await self._may(fields, kind == GO_AUTH_WRITE, topic)

    async def rabbitmq_resource(self, fields: Fields) -> bool:
        """MQTT in RabbitMQ is a queue for each client id and the exchange `amq.topic`."""
        name = fields.get("name", "")
        if fields.get("resource") == "exchange":
            return name == "amq.topic" and fields.get("permission") in ("read", "write") and await self.is_known(fields)
        queue = _RABBITMQ_QUEUE.fullmatch(name)
        is_own = queue is not None and self.access.owns_client_id(fields.get("username", ""), queue["client_id"])
        return fields.get("resource") == "queue" and is_own and await self.is_known(fields)

    async def rabbitmq_topic(self, fields: Fields) -> bool:
        topic = fields.get("routing_key", "").replace(".", "/").replace("*", "+")
        return await self._may(fields, fields.get("permission") == "write", topic)

    async def _may(self, fields: Fields, is_publish: bool, topic: str) -> bool:
        action = BrokerAction.PUBLISH if is_publish else BrokerAction.SUBSCRIBE
        return self._fits_client(fields) and await self.access.may_use_topic(fields.get("username", ""), action, topic)

    def _fits_client(self, fields: Fields) -> bool:
        """Not every broker names the client id after the login, which has judged it."""
        client_id = _client_id(fields)
        return not client_id or self.access.owns_client_id(fields.get("username", ""), client_id)

    async def vernemq(self, hook: str, body: Mapping[str, Any]) -> bool:
        fields = {name: str(body.get(name) or "") for name in ("username", "password", "client_id", "peer_addr", "topic")}
        match hook.removesuffix("_m5"):
            case "auth_on_register":
                return await self.may_connect(fields)
            case "auth_on_publish":
                return await self._may(fields, True, fields["topic"])
            case "auth_on_subscribe":
                topics = [str(each.get("topic", "")) for each in body.get("topics") or () if isinstance(each, dict)]
                return bool(topics) and all([await self._may(fields, False, topic) for topic in topics])
        return False


def broker_access_blueprint(access: ExternalBrokerAuthService, guard: BrokerAuthRequestGuard) -> Blueprint:
    bp = Blueprint("broker_access", __name__, url_prefix="/broker")
    questions = BrokerAuthFormTranslator(access=access, guard=guard)

    @bp.before_request
    async def admit() -> Response | None:
        was_forwarded = any(name in request.headers for name in _PROXY_HEADERS)
        if guard.admits(request.headers.get("Authorization"), request.remote_addr or "", was_forwarded=was_forwarded):
            return None
        return Response("The broker must show LATCHBOARD_BROKER_AUTH_SECRET or ask from LATCHBOARD_BROKER_AUTH_NETWORKS.\n", 401)

    _add(bp, "/emqx/auth", questions.may_connect, _emqx)
    _add(bp, "/emqx/acl", questions.emqx_topic, _emqx)
    _add(bp, "/rabbitmq/user", questions.may_connect, _rabbitmq)
    _add(bp, "/rabbitmq/vhost", questions.is_known, _rabbitmq)
    _add(bp, "/rabbitmq/resource", questions.rabbitmq_resource, _rabbitmq)
    _add(bp, "/rabbitmq/topic", questions.rabbitmq_topic, _rabbitmq)
    _add(bp, "/mosquitto/user", questions.may_connect, _go_auth)
    _add(bp, "/mosquitto/superuser", questions.is_service, _go_auth)
    _add(bp, "/mosquitto/acl", questions.go_auth_topic, _go_auth)

    @bp.post("/vernemq")
    async def vernemq() -> Response:
        hook = request.headers.get("vernemq-hook", "")
        allowed = await _judge(questions.vernemq(hook, await _json_object()))
        return _json({"result": "ok" if allowed else {"error": "not_allowed"}})

    return bp


def _add(bp: Blueprint, path: str, decide: Decide, answer: Answer) -> None:
    async def handle() -> Response:
        return answer(await _judge(decide(await _fields())))

    bp.add_url_rule(path, path.strip("/").replace("/", "_"), handle, methods=["POST"])


async def _judge(decision: Awaitable[bool]) -> bool | None:
    """None: a database that does not answer proves nothing."""
    try:
        return await decision
    except Unavailable:
        return None


async def _fields() -> Fields:
    """Of a JSON object or a form; what is missing or not text is empty."""
    if request.mimetype == "application/json":
        return {name: str(value) for name, value in (await _json_object()).items() if value is not None}
    return (await request.form).to_dict()


async def _json_object() -> Mapping[str, Any]:
    """Empty if the body is none."""
    raw: bytes = await request.get_data(as_text=False)  # type: ignore[assignment]  # its annotation names the text too
    try:
        return parse_json_object(raw)
    except DomainError:
        return {}


def _client_id(fields: Fields) -> str:
    """As EMQX and mosquitto-go-auth, VerneMQ and RabbitMQ, and RabbitMQ's question of topics name it."""
    return fields.get("clientid") or fields.get("client_id") or fields.get("variable_map.client_id") or ""


def _emqx(allowed: bool | None) -> Response:
    """Always with 200: EMQX takes any other status as no answer and asks its next source."""
    return _json({"result": "allow" if allowed else "deny"})


def _rabbitmq(allowed: bool | None) -> Response:
    return Response("allow" if allowed else "deny", content_type="text/plain")


def _go_auth(allowed: bool | None) -> Response:
    """In every response mode at once; the mode `text` with `?mode=text`.

    Mosquitto confirms a message of MQTT 3.1.1 that its plugin refuses, and drops it. At an error of the plugin, which a status
    from 500 is, it closes the connection, and the device tries again."""
    if allowed is None:
        return Response("not known\n", 503, content_type="text/plain")
    if request.args.get("mode") == "text":
        return Response("ok" if allowed else "not allowed", content_type="text/plain")
    return _json({"ok": allowed, "error": "" if allowed else "not allowed"}, 200 if allowed else 403)


def _json(value: object, status: int = 200) -> Response:
    return Response(json.dumps(value), status=status, content_type="application/json")
