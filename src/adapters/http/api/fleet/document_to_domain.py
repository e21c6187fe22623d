"""The document of a fleet, from its request to the domain."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import Any, TypeVar

from pydantic import BaseModel

from adapters.http.api.commands.schemas import CommandDefinitionCreateRequest
from adapters.http.api.fleet import schemas as schema
from adapters.http.api.rules.schemas import RuleCreateRequest, to_rule_fields
from adapters.http.api.schedules.schemas import ScheduleCreateRequest
from domain.devices.model import infer_profile
from domain.events.model import DEFAULT_TYPES
from domain.fleet_file.account_objects import check_place
from domain.fleet_file.model import DesiredFleetObject, FleetDocument, FleetKind, Key, with_place
from domain.fleet_file.service import FleetFileInput
from domain.kernel.errors import ValidationFailed

ItemT = TypeVar("ItemT", bound=BaseModel)
_PARTS = frozenset({"commands", "schedules", "rules"})
_DOMAIN_NAMES = {"expires_at": "expires_ms", "misfire_grace_seconds": "misfire_grace_s"}


def to_fleet_request(body: schema.FleetApplyRequest) -> FleetFileInput:
    """Raises ValidationFailed with the place in the body."""
    given = body.document
    sections: dict[FleetKind, Sequence[DesiredFleetObject]] = {}
    _add(sections, FleetKind.PROJECTS, given.projects, _named)
    _add(sections, FleetKind.DEVICE_TYPES, given.device_types, _device_type)
    of_types = {each.name: tuple(each.metrics or ()) for each in given.device_types or ()}
    _add(sections, FleetKind.DEVICES, given.devices, partial(_device, of_types))
    _add(sections, FleetKind.GROUPS, given.groups, _group)
    _add(sections, FleetKind.API_KEYS, given.api_keys, _named)
    _add(sections, FleetKind.GRANTS, given.grants, _grant)
    _add(sections, FleetKind.WEBHOOKS, given.webhooks, _webhook)
    return FleetFileInput(FleetDocument(sections, given.project), body.prune, body.credentials)


def _add(
    sections: dict[FleetKind, Sequence[DesiredFleetObject]],
    kind: FleetKind,
    given: Sequence[ItemT] | None,
    convert: Callable[[str, ItemT], DesiredFleetObject],
    base: str = "document",
) -> None:
    if given is not None:
        sections[kind] = [_converted(f"{base}.{kind}.{index}", each, convert) for index, each in enumerate(given)]


def _converted(path: str, given: ItemT, convert: Callable[[str, ItemT], DesiredFleetObject]) -> DesiredFleetObject:
    try:
        return convert(path, given)
    except ValidationFailed as error:
        raise with_place(error, path) from None


def _wanted(path: str, key: Key, given: BaseModel, values: Mapping[str, Any]) -> DesiredFleetObject:
    named = {_DOMAIN_NAMES.get(name, name) for name in given.model_fields_set}
    return DesiredFleetObject(path, key, values, frozenset(named & values.keys()))


def _plain(given: BaseModel) -> dict[str, Any]:
    return {name: getattr(given, name) for name in type(given).model_fields}


def _shallow(value: Any) -> dict[str, Any]:
    return {one.name: getattr(value, one.name) for one in fields(value)}


def _named(path: str, given: schema.FleetProject | schema.FleetApiKey) -> DesiredFleetObject:
    return _wanted(path, (given.name,), given, _plain(given))


def _device_type(path: str, given: schema.FleetDeviceType) -> DesiredFleetObject:
    commands = tuple(sorted((each.to_input() for each in given.commands), key=lambda one: one.name))
    return _wanted(path, (given.name,), given, {"name": given.name, "commands": commands})


def _device(metrics_of_types: Mapping[str, tuple[str, ...]], path: str, given: schema.FleetDevice) -> DesiredFleetObject:
    if given.external_id is None and given.device_id is None:
        raise ValidationFailed.for_field("externalId", "is required: your own id of the device, such as its serial number.")
    key = ("deviceId", given.device_id) if given.device_id is not None else ("externalId", str(given.external_id))
    values = {name: value for name, value in _plain(given).items() if name not in _PARTS | {"device_id"}}
    values["metrics"] = (*metrics_of_types.get(given.device_type or "", ()), *(given.metrics or ()))
    values["tags"] = tuple(dict.fromkeys(given.tags or ()))
    values["profile"] = given.profile or infer_profile(given.board_type, given.app_type)
    wanted = _wanted(path, key, given, values)
    kept = {name for name in wanted.given if name not in ("project", "profile") or values[name] is not None}
    kept -= {"metrics"} if given.profile is not None else {"metrics", "profile"}
    children: dict[FleetKind, Sequence[DesiredFleetObject]] = {}
    _add(children, FleetKind.COMMANDS, given.commands, _command, path)
    _add(children, FleetKind.SCHEDULES, given.schedules, _schedule, path)
    _add(children, FleetKind.RULES, given.rules, _rule, path)
    return DesiredFleetObject(path, key, values, frozenset(kept), children)


def _command(path: str, given: CommandDefinitionCreateRequest) -> DesiredFleetObject:
    return _wanted(path, (given.name,), given, _shallow(given.to_input()))


def _schedule(path: str, given: ScheduleCreateRequest) -> DesiredFleetObject:
    return _wanted(path, (given.slot,), given, {"slot": given.slot, **_shallow(given.to_input())})


def _rule(path: str, given: RuleCreateRequest) -> DesiredFleetObject:
    return _wanted(path, (given.name,), given, to_rule_fields(given))


def _group(path: str, given: schema.FleetGroup) -> DesiredFleetObject:
    values = {**_plain(given), "devices": tuple(given.devices)}
    return _wanted(path, (given.project or "", given.name), given, values)


def _grant(path: str, given: schema.FleetGrant) -> DesiredFleetObject:
    values = _shallow(given.to_content())
    values |= {name: getattr(given, name) for name in ("api_key", "member", "device", "group", "project")}
    values["commands"] = tuple(dict.fromkeys(values["commands"]))
    values["active_days"] = tuple(sorted(set(values["active_days"])))
    check_place(values)
    return _wanted(path, (given.api_key or given.member or "", path), given, values)


def _webhook(path: str, given: schema.FleetWebhook) -> DesiredFleetObject:
    types = DEFAULT_TYPES if given.types is None else given.types
    return _wanted(path, (given.api_key, given.url), given, {**_plain(given), "types": tuple(sorted(set(types)))})
