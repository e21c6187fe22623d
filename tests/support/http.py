"""The REST API on a real loopback socket, over in-memory storage, with a clock that tests move.

    async with serving(HttpWorld()) as http:
        await http.sign_in()
        answer = await http.get("/projects")

Parts that are tested through HTTP add their blueprints: `HttpWorld(blueprints=lambda world: [rules_blueprint(...)])`.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
from hypercorn.asyncio import serve
from hypercorn.config import Config
from quart import Blueprint, Quart

from adapters.crypto.key_ring import KeyRing
from adapters.crypto.passwords import Argon2PasswordHasher, PyotpTotpCodec
from adapters.crypto.tokens import JwtAccessTokenCodec, KeyRingTokenHasher
from adapters.crypto.vault import AesVault
from adapters.crypto.webauthn import WebAuthnCeremonies
from adapters.http.api.authentication import auth_blueprint
from adapters.http.api.device_setup import catalog_blueprint
from adapters.http.api.keys import keys_blueprint
from adapters.http.api.projects import projects_blueprint
from adapters.http.api.team import team_blueprint
from adapters.http.app import create_app
from adapters.http.core.idempotency import IdempotencyStore
from adapters.http.core.middleware import HttpMiddlewareSettings
from adapters.http.documents.routes import openapi_blueprint
from adapters.translator import MessageCatalogTranslator
from adapters.waiters import InProcessApprovalWaiter
from domain.accounts.projects import ProjectService
from domain.approvals.service import PendingApprovalCloser
from domain.grants.service import GrantService
from domain.kernel.caller import Role, SessionCaller
from domain.kernel.errors import DomainError
from domain.keys.authenticator import CallerAuthenticator
from domain.keys.service import ApiKeyService
from domain.sign_in.login import LoginService
from domain.sign_in.passkeys import PasskeySignInService
from domain.sign_in.password_change import PasswordChangeService
from domain.sign_in.policy import HmacKnownBrowserTokenCodec
from domain.sign_in.second_factor import PasskeyAssertionService, PasskeyChallengeCodec, SecondFactorChecker
from domain.sign_in.sessions import SessionOpener, SessionTokenIssuer, UserSessionService
from domain.sign_in.unlock_link import SignInUnlockLinkService
from domain.team.members import MemberService
from domain.team.operator import CreatedAccountWithOwner, OperatorService
from support.described import assert_described
from support.manual_clock import ManualClock, OrderedIdGenerator
from support.memory_storage.unit_of_work import MemoryUnitOfWork
from support.waiting import TIMEOUT_S

PASSWORD = "correct horse battery"


async def outcome(action: Awaitable[object]) -> str:
    """The code of the error that it raises, or `ok`."""
    try:
        await action
    except DomainError as error:
        return error.code
    return "ok"


class FakeMailer:
    """A mailer that keeps all mails; `broken` is an error to raise instead."""

    def __init__(self) -> None:
        self.mails: list[tuple[str, str, str]] = []
        self.broken: Exception | None = None

    def enqueue(self, to: str, subject: str, text: str) -> None:
        self.mails.append((to, subject, text))

    async def send(self, to: str, subject: str, text: str) -> None:
        if self.broken is not None:
            raise self.broken
        self.mails.append((to, subject, text))


class HttpWorld:
    """All that the accounts and keys parts need, built as `app.wiring.compose` builds it; `blueprints` adds those of other
    parts."""

    def __init__(
        self,
        *,
        blueprints: Callable[[HttpWorld], Sequence[Blueprint]] = lambda world: (),
        settings: HttpMiddlewareSettings | None = None,
        uow: Any = None,
        hasher: Any = None,
        clock: Any = None,
    ) -> None:
        self.clock = clock or ManualClock()
        self.ids = OrderedIdGenerator()
        self.uow: Any = uow or MemoryUnitOfWork()
        self.ring = KeyRing.generate()
        self.vault = AesVault(ring=self.ring)
        self.idempotency_store = IdempotencyStore(uow=self.uow, clock=self.clock, vault=self.vault, process_id=b"this process")
        self.digest = KeyRingTokenHasher(self.ring)
        self.tokens = JwtAccessTokenCodec(self.ring)
        self.hasher: Any = hasher or Argon2PasswordHasher(
            memory_kib=8, passes=1
        )  # cheap parameters: most tests do not measure its cost
        self.mail = FakeMailer()
        shared: dict[str, Any] = {"uow": self.uow, "clock": self.clock, "ids": self.ids}
        self.operator = OperatorService(**shared, hasher=self.hasher)
        codec, challenges = (
            WebAuthnCeremonies(origin="https://latchboard.test"),
            PasskeyChallengeCodec(ids=self.ids, digest=self.digest),
        )
        verifier = PasskeyAssertionService(uow=self.uow, clock=self.clock, codec=codec, challenges=challenges)
        factors = SecondFactorChecker(totp=PyotpTotpCodec(), vault=self.vault, digest=self.digest, passkeys=verifier)
        devices = HmacKnownBrowserTokenCodec(ids=self.ids, digest=self.digest)
        issuer = SessionTokenIssuer(ids=self.ids, tokens=self.tokens, digest=self.digest)
        opener = SessionOpener(issuer=issuer, devices=devices)
        self.logins = LoginService(
            uow=self.uow,
            clock=self.clock,
            hasher=self.hasher,
            opener=opener,
            devices=devices,
            factors=factors,
            ids=self.ids,
            digest=self.digest,
        )
        self.passkey_sign_ins = PasskeySignInService(
            uow=self.uow,
            clock=self.clock,
            codec=codec,
            challenges=challenges,
            verifier=verifier,
            opener=opener,
            digest=self.digest,
        )
        self.unlock = SignInUnlockLinkService(
            **shared,
            digest=self.digest,
            mails=self.mail,
            devices=devices,
            link_url="https://latchboard.test/unlock?token=",
            translator=MessageCatalogTranslator(),
        )
        self.sessions = UserSessionService(uow=self.uow, clock=self.clock, issuer=issuer)
        self.passwords = PasswordChangeService(
            **shared, hasher=self.hasher, digest=self.digest, mailer=self.mail, translator=MessageCatalogTranslator()
        )
        self.team = MemberService(**shared, hasher=self.hasher, requests=PendingApprovalCloser(waiter=InProcessApprovalWaiter()))
        self.projects = ProjectService(**shared)
        self.keys = ApiKeyService(**shared, digest=self.digest, requests=PendingApprovalCloser(waiter=InProcessApprovalWaiter()))
        of_changes: dict[str, Any] = dict.fromkeys(("windows", "commands", "on_grants_changed"))
        self.grants: GrantService[Any] = GrantService(**shared, **of_changes)  # lists the grants of a key
        self.callers = CallerAuthenticator(uow=self.uow, clock=self.clock, tokens=self.tokens, token_hasher=self.digest)
        self._settings = settings
        self._more = blueprints

    def app(self) -> Quart:
        return create_app(
            blueprints=[
                auth_blueprint(logins=self.logins, unlock=self.unlock, sessions=self.sessions, passwords=self.passwords),
                team_blueprint(team=self.team),
                projects_blueprint(projects=self.projects),
                keys_blueprint(keys=self.keys, grants=self.grants),
                catalog_blueprint(),
                openapi_blueprint(version="0", clock=self.clock),
                *self._more(self),
            ],
            authenticator=self.callers,
            idempotency_store=self.idempotency_store,
            settings=self._settings,
            clock=self.clock,
        )

    async def account(self, email: str = "ada@example.com", name: str = "Analytical Engines") -> CreatedAccountWithOwner:
        created = await self.operator.create_account(name=name, email=email, password=PASSWORD, owner_name="Ada")
        assert created is not None
        return created

    async def owner(self) -> SessionCaller:
        """The caller who owns a new account."""
        membership = (await self.account()).owner.membership
        return SessionCaller(membership.account_id, membership.user_id, membership.membership_id, Role.OWNER, "192.0.2.1")

    async def join(self, owner: SessionCaller, role: Role, email: str) -> SessionCaller:
        """Another member of the owner's account."""
        member = await self.operator.add_user(owner.account_id, email=email, password=PASSWORD, role=role)
        return SessionCaller(owner.account_id, member.user.user_id, member.membership.membership_id, role, owner.address)

    async def close(self) -> None:
        self.hasher.close()


class HttpClient:
    """A client of one served world. `get`, `post`, … call paths below `/api/v1` with `headers`; `raw` is the httpx client."""

    def __init__(self, world: HttpWorld, raw: httpx.AsyncClient) -> None:
        self.world = world
        self.raw = raw
        self.headers: dict[str, str] = {}
        self.account: CreatedAccountWithOwner | None = None

    async def sign_in(self, email: str = "ada@example.com", role: Role | None = None) -> dict[str, Any]:
        """Sign in as `email`; creates the account (its Owner is ada) or the member if missing."""
        if self.account is None:
            self.account = await self.world.account()
        if role is not None:
            account_id = self.account.account.account_id
            await self.world.operator.add_user(account_id, email=email, password=PASSWORD, role=role)
        answer = await self.post("/auth/login", {"email": email, "password": PASSWORD})
        assert answer.status_code == 200, answer.text
        signed_in: dict[str, Any] = answer.json()
        self.headers = {"Authorization": f"Bearer {signed_in['accessToken']}"}
        return signed_in

    async def call(self, method: str, path: str, json: Any = None, **more: Any) -> httpx.Response:
        headers = {**self.headers, **more.pop("headers", {})}
        answer = await self.raw.request(method, f"/api/v1{path}", json=json, headers=headers, **more)
        assert_described(answer)
        return answer

    async def get(self, path: str, **more: Any) -> httpx.Response:
        return await self.call("GET", path, **more)

    async def post(self, path: str, json: Any = None, **more: Any) -> httpx.Response:
        return await self.call("POST", path, json, **more)

    async def put(self, path: str, json: Any = None, **more: Any) -> httpx.Response:
        return await self.call("PUT", path, json, **more)

    async def patch(self, path: str, json: Any = None, **more: Any) -> httpx.Response:
        return await self.call("PATCH", path, json, **more)

    async def delete(self, path: str, **more: Any) -> httpx.Response:
        return await self.call("DELETE", path, **more)


@asynccontextmanager
async def listening(app: Quart, *, ping_every_s: float | None = None) -> AsyncIterator[str]:
    """The app on a real loopback port; gives its base URL."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)  # a client may connect before the server accepts
    port = listener.getsockname()[1]
    config = Config()
    config.bind = [f"fd://{listener.detach()}"]  # the server closes it
    config.accesslog = None
    config.errorlog = None
    config.graceful_timeout = 1
    config.websocket_ping_interval = ping_every_s
    config.websocket_max_message_size = 64 * 1024
    stop = asyncio.Event()
    server = asyncio.create_task(serve(app, config, shutdown_trigger=stop.wait))
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        stop.set()
        await asyncio.wait_for(server, TIMEOUT_S)


@asynccontextmanager
async def serving(world: HttpWorld) -> AsyncIterator[HttpClient]:
    """The world on a real loopback port, with a client that is not signed in yet."""
    try:
        async with listening(world.app()) as url, httpx.AsyncClient(base_url=url, timeout=TIMEOUT_S, verify=False) as raw:
            yield HttpClient(world, raw)
    finally:
        await world.close()
