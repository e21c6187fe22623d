"""The bridge to Home Assistant: MQTT discovery messages and states of devices out, switch commands in.

Home Assistant acts as an API key: it sees the devices that the key may read, and its switch commands pass the same grants,
windows, limits and approvals as any command of that key. It uses topics on its own broker and never talks to a device. The bridge
maps each device to retained messages (topic → payload); the worker publishes the differences and clears topics that are no longer
in the map.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from domain.commands.model import CommandDefinition, Execution, effective_definitions
from domain.commands.ports import CommandsTx
from domain.commands.submission import CommandSubmissionService
from domain.devices.model import Device
from domain.feed.snapshot import FeedSnapshotAndReplayService
from domain.homeassistant.discovery import (
    TOPIC_ROOT,
    HomeAssistantTopics,
    RetainedMessages,
    command_entities,
    discovery_filters,
    retained_messages,
)
from domain.kernel.caller import ApiKeyCaller
from domain.kernel.clock import SECOND_MS, Clock
from domain.kernel.dataclasses import service
from domain.kernel.domain_event import Json
from domain.kernel.errors import ValidationFailed
from domain.kernel.ids import AccountId, DeviceId
from domain.kernel.unit_of_work import UnitOfWork
from domain.keys.authenticator import CallerAuthenticator
from domain.keys.model import BRIDGE_ADDRESS
from domain.rules.ports import TelemetryEngine

DeviceFingerprint = tuple[object, ...]


def device_fingerprint(device: Device) -> DeviceFingerprint:
    """Everything about a device that Home Assistant shows, without its readings."""
    return device.status, device.is_online, device.relay, device.name, device.about


@service
class HomeAssistantBridge:
    """`secret` is the API key that Home Assistant acts as; `discovery_prefix` is Home Assistant's own setting."""

    uow: UnitOfWork[CommandsTx]
    clock: Clock
    audience: FeedSnapshotAndReplayService
    authenticator: CallerAuthenticator
    commands: CommandSubmissionService
    latest_values: TelemetryEngine
    secret: str
    discovery_prefix: str

    async def authenticate(self) -> tuple[ApiKeyCaller, HomeAssistantTopics]:
        """The caller and its topics. Raises Unauthenticated for an unknown or disabled key."""
        caller = await self.authenticator.authenticate_key(self.secret, BRIDGE_ADDRESS)
        return caller, HomeAssistantTopics(self.discovery_prefix, caller.account_id)

    async def list_account_ids(self) -> frozenset[AccountId]:
        """Every account in this database."""
        async with self.uow.read() as tx:
            return frozenset(await tx.accounts.list_ids())

    def owned_topic_filters(self) -> tuple[str, ...]:
        """Topic filters that match everything the bridge publishes, for any account."""
        return (*discovery_filters(self.discovery_prefix), f"{TOPIC_ROOT}/#")

    async def find_visible_devices(self, caller: ApiKeyCaller) -> tuple[Sequence[Device], float] | None:
        """The devices that the key may read, and the seconds until a grant expires and they must be loaded again; None if the key
        has been disabled or deleted."""
        snapshot = await self.audience.snapshot(caller)
        if snapshot is None:
            return None
        return snapshot.devices, max(0.0, (snapshot.visibility.valid_until_ms - self.clock.now_ms()) / SECOND_MS)

    async def reload_devices(self, topics: HomeAssistantTopics, device_ids: Collection[DeviceId]) -> Sequence[Device]:
        """Load the current state of these devices of the account."""
        async with self.uow.read() as tx:
            devices = await tx.devices.list_by_ids(device_ids)
        return [device for device in devices if device.account_id == topics.account_id]

    async def retained_by_device(
        self, topics: HomeAssistantTopics, devices: Sequence[Device]
    ) -> Mapping[DeviceId, RetainedMessages]:
        commands = await self._load_commands(topics.account_id, devices)
        return {
            device.device_id: retained_messages(
                topics, device, self.latest_values.latest(device.device_no), *commands[device.device_id]
            )
            for device in devices
        }

    async def _load_commands(
        self, account_id: AccountId, devices: Sequence[Device]
    ) -> Mapping[DeviceId, tuple[Sequence[CommandDefinition], Sequence[str]]]:
        """By device: the definitions that apply to it, and the names of its commands that wait for approval."""
        type_ids = {device.device_type_id for device in devices if device.device_type_id is not None}
        async with self.uow.read() as tx:
            found = await tx.definitions.list_by_devices_and_types([device.device_id for device in devices], type_ids)
            waiting = await tx.approvals.list_pending_commands(account_id)
        of_device, of_type = defaultdict(list), defaultdict(list)
        for definition in found:
            if definition.device_id is not None:
                of_device[definition.device_id].append(definition)
            else:
                of_type[definition.device_type_id].append(definition)
        return {
            device.device_id: (
                effective_definitions(of_type[device.device_type_id], of_device[device.device_id], device),
                [cmd for device_id, cmd, _ in waiting if device_id == device.device_id],
            )
            for device in devices
        }

    async def submit_command(self, device_id: DeviceId, command: str, params: Json = None) -> Execution | None:
        """Submit as the key, which is authenticated again. Returns None if the command waits for approval. Raises any denial."""
        caller, _ = await self.authenticate()
        return (await self.commands.submit(caller, device_id, command, params)).execution

    async def submit_entity_command(self, device_id: DeviceId, name: str, payload: str) -> Execution | None:
        """The same for the entity of a command. Raises ValidationFailed if the device has no such entity, or for a payload that
        it does not send."""
        caller, topics = await self.authenticate()
        devices = await self.reload_devices(topics, [device_id])
        commands = await self._load_commands(caller.account_id, devices)
        known = command_entities(commands[device_id][0]) if device_id in commands else []
        for entity in known:
            if entity.definition.name == name:
                try:
                    params = entity.parse_params(payload)
                except ValueError as error:
                    raise ValidationFailed(f"{name} got no value of its entity: {error}.") from None
                return await self.submit_command(device_id, name, params)
        raise ValidationFailed(f"{name} is no entity of this device.")
