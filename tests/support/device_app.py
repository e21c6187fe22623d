"""The HTTP application over a `DeviceWorld`. A token is the name of a role; a key is its own id."""

from __future__ import annotations

from quart import Quart

from adapters.http.api.commands import commands_blueprint
from adapters.http.api.device_setup import catalog_blueprint, credentials_blueprint
from adapters.http.api.device_types import device_types_blueprint
from adapters.http.api.devices import devices_blueprint
from adapters.http.api.events import events_blueprint
from adapters.http.app import create_app
from domain.audit.export import AuditExportGenerator
from domain.events.service import EventService
from domain.kernel.caller import ApiKeyCaller, Role, SessionCaller
from domain.kernel.errors import Unauthenticated
from domain.kernel.ids import KeyId
from support.device_world import ACCOUNT, DeviceWorld
from support.sealing import KEYS


class RoleNameAuthenticator:
    def __init__(self, world: DeviceWorld) -> None:
        self._world = world

    async def authenticate_token(self, token: str, address: str) -> tuple[SessionCaller, int]:
        return self._world.session(Role(token)), self._world.clock.now_ms() + 900_000

    async def authenticate_key(self, secret: str, address: str) -> ApiKeyCaller:
        async with self._world.uow.read() as tx:
            key = await tx.api_keys.get(ACCOUNT, KeyId(secret))
        if key is None:
            raise Unauthenticated("This API key is unknown.")
        return ApiKeyCaller(ACCOUNT, key.key_id, key.name, address)


def as_person(role: Role = Role.OWNER) -> dict[str, str]:
    return {"Authorization": f"Bearer {role}"}


def as_key(key: ApiKeyCaller) -> dict[str, str]:
    return {"X-Api-Key": key.key_id}


def make_app(world: DeviceWorld) -> Quart:
    return create_app(
        blueprints=[
            catalog_blueprint(),
            devices_blueprint(world.devices, world.control),
            credentials_blueprint(world.credentials, world.firmware),
            device_types_blueprint(world.types),
            events_blueprint(
                EventService(uow=world.uow, clock=world.clock), AuditExportGenerator(uow=world.uow, clock=world.clock, keys=KEYS)
            ),
            commands_blueprint(world.commands, world.waiter, world.definitions, world.control, world.cancellation),
        ],
        authenticator=RoleNameAuthenticator(world),
    )
