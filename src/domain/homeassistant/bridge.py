"""The bridge to Home Assistant: MQTT discovery messages and states of devices out, commands in.

Home Assistant acts as an API key: it sees the devices that the key may read, and its commands pass the same grants, windows,
limits and approvals as any command of that key. What is refused is in the log, and a sensor of the device shows it. It uses
topics on its own broker and never talks to a device. The bridge maps each device to retained messages (topic → payload); the
worker publishes the differences and clears topics that are no longer in the map.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field

from domain.commands.model import CommandDefinition, effective_definitions
from domain.commands.ports import CommandsTx
from domain.commands.submission import CommandSubmissionService
from domain.devices.channels import on_channel
from domain.devices.model import Device
from domain.feed.snapshot import FeedSnapshotAndReplayService
from domain.homeassistant.channels import parse_channel_command
from domain.homeassistant.discovery import (
    TOPIC_ROOT,
    HomeAssistantTopics,
    RefusedCommand,
    RetainedMessages,
    command_entities,
    discovery_filters,
    retained_messages,
)
from domain.kernel.caller import ApiKeyCaller
from domain.kernel.clock import SECOND_MS, Clock
from domain.kernel.dataclasses import service
from domain.kernel.domain_event import JsonObject
from domain.kernel.errors import Conflict, DomainError, NotFound, PermissionDenied, RateLimited, ValidationFailed
from domain.kernel.ids import AccountId, DeviceId
from domain.kernel.ports import DeniedRequestLog
from domain.kernel.unit_of_work import UnitOfWork
from domain.keys.authenticator import CallerAuthenticator
from domain.keys.model import BRIDGE_ADDRESS
from domain.rules.ports import TelemetryEngine

MAX_SHOWN_COMMAND = 100

DeviceFingerprint = tuple[object, ...]


def device_fingerprint(device: Device) -> DeviceFingerprint:
    """Everything about a device that Home Assistant shows, without its readings."""
    about = device.name, device.about, device.app_type, device.app_type_other
    return device.status, device.is_online, device.relay, device.channels, *about


@service
class HomeAssistantBridge:
    """`secret` is the API key that Home Assistant acts as; `discovery_prefix` is Home Assistant's own setting."""

    uow: UnitOfWork[CommandsTx]
    clock: Clock
    audience: FeedSnapshotAndReplayService
    authenticator: CallerAuthenticator
    commands: CommandSubmissionService
    latest_values: TelemetryEngine
    denied_requests: DeniedRequestLog
    secret: str
    discovery_prefix: str
    _refused: dict[DeviceId, RefusedCommand] = field(default_factory=dict, init=False)
    """The last one of each device."""

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
                topics,
                device,
                self.latest_values.latest(device.device_no),
                *commands[device.device_id],
                self._refused.get(device.device_id),
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
                [on_channel(cmd, channel) for device_id, cmd, channel in waiting if device_id == device.device_id],
            )
            for device in devices
        }

    async def submit_command(self, device_id: DeviceId, name: str | None, channel: int, payload: str) -> bool:
        """Submit what an entity of the device sent, as the key, which is authenticated again. `name`: of the command that the
        entity is for; None for the entity of a channel, whose payload says the command. False for a payload that the channel's
        entity does not send. Raises NotFound, ValidationFailed if the device has no such entity, and any denial."""
        caller, topics = await self.authenticate()
        device = next(iter(await self.reload_devices(topics, [device_id])), None)
        if device is None:
            raise NotFound.for_resource("device", device_id)
        cmd = name or payload[:MAX_SHOWN_COMMAND]
        try:
            parsed = await self._parse(device, name, channel, payload)
            if parsed is None:
                return False
            cmd, params = parsed
            await self.commands.submit(caller, device_id, cmd, params, channel=channel)
        except (PermissionDenied, RateLimited) as error:
            subject: dict[str, str] = {"deviceId": device_id}
            await self.denied_requests.log_denied(caller, f"the command {on_channel(cmd, channel)}", error, subject)
            self._keep_refusal(device_id, cmd, channel, error)
            raise
        except (ValidationFailed, Conflict) as error:
            self._keep_refusal(device_id, cmd, channel, error)
            raise
        return True

    async def _parse(self, device: Device, name: str | None, channel: int, payload: str) -> tuple[str, JsonObject | None] | None:
        if name is None:
            known = device.channel(channel)
            return None if known is None else parse_channel_command(known.kind, payload)
        definitions, _ = (await self._load_commands(device.account_id, [device]))[device.device_id]
        for entity in command_entities(definitions, device.all_channels):
            if (entity.definition.name, entity.channel.channel) == (name, channel):
                try:
                    return name, entity.parse_params(payload)
                except ValueError as error:
                    raise ValidationFailed(f"{name} got no value of its entity: {error}.") from None
        raise ValidationFailed(f"{on_channel(name, channel)} is no entity of this device.")

    def _keep_refusal(self, device_id: DeviceId, cmd: str, channel: int, error: DomainError) -> None:
        self._refused[device_id] = RefusedCommand(cmd, channel, error.code, error.message, self.clock.now_ms())

    def forget_refusals(self, visible: Collection[DeviceId]) -> None:
        """Those of other devices than the visible ones."""
        self._refused = {device_id: refused for device_id, refused in self._refused.items() if device_id in visible}
