"""Response models of the fleet as a file, and how they are made from what the domain returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from typing import Any

from pydantic import Field, JsonValue
from pydantic.alias_generators import to_camel

from adapters.http.api.device_credentials.schemas import CredentialsResponse
from adapters.http.core.schemas import ResponseModel
from domain.fleet_file.model import Fields, FleetAction, FleetKind, FleetObjectOutcome, StoredFleetObject
from domain.fleet_file.service import ExportedFleet
from domain.kernel.clock import to_iso

_FILE_NAMES = {"expires_ms": "expiresAt", "misfire_grace_s": "misfireGraceSeconds"}


def file_name(field: str) -> str:
    return _FILE_NAMES.get(field) or to_camel(field)


def file_value(field: str, value: Any) -> Any:
    """As JSON. What a nested object has by default is left out."""
    if isinstance(value, Enum):
        return value.value
    if field.endswith("_ms") and value is not None:
        return to_iso(value)
    if is_dataclass(value):
        parts = [(one, getattr(value, one.name)) for one in fields(value)]
        return {
            file_name(one.name): file_value(one.name, part)
            for one, part in parts
            if one.default is MISSING or part != one.default
        }
    if isinstance(value, tuple):
        return [file_value("", each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value


class FleetFieldChange(ResponseModel):
    field: str
    before: JsonValue
    after: JsonValue


class FleetObjectPlan(ResponseModel):
    """`name` is what the file calls it; `device` is the device that a command, schedule or rule belongs to."""

    section: FleetKind
    action: FleetAction
    path: str = Field(description="Its place in the request.", examples=["document.devices.0"])
    name: str
    device: str | None
    changes: list[FleetFieldChange]


class FleetObjectResult(FleetObjectPlan):
    id: str
    secret: str | None = Field(description="The secret of a new API key or webhook. Shown only in this response.")
    credentials: CredentialsResponse | None = Field(description="The new credentials of a device. Shown only in this response.")


class FleetCounts(ResponseModel):
    create: int
    change: int
    delete: int
    unchanged: int


class FleetPlanResponse(ResponseModel):
    """`objects`: those that an apply would create, change or delete, in its order."""

    counts: FleetCounts
    objects: list[FleetObjectPlan]


class FleetApplyResponse(ResponseModel):
    """`objects`: those that were created, changed or deleted."""

    counts: FleetCounts
    objects: list[FleetObjectResult]


class FleetResponse(ResponseModel):
    document: dict[str, JsonValue] = Field(description="As `document` of an apply takes it.")
    left_out: list[FleetKind] = Field(description="Sections that you may not read. The document does not manage them.")


def plan_response(outcomes: Sequence[FleetObjectOutcome]) -> FleetPlanResponse:
    return FleetPlanResponse(
        counts=_counts(outcomes), objects=[FleetObjectPlan.of(each, **_shown(each)) for each in _differing(outcomes)]
    )


def apply_response(outcomes: Sequence[FleetObjectOutcome]) -> FleetApplyResponse:
    made = [
        FleetObjectResult.of(
            each,
            **_shown(each),
            credentials=None if each.credentials is None else CredentialsResponse.from_domain(each.credentials),
        )
        for each in _differing(outcomes)
    ]
    return FleetApplyResponse(counts=_counts(outcomes), objects=made)


def fleet_response(exported: ExportedFleet, project: str | None, sections: Mapping[FleetKind, Fields]) -> FleetResponse:
    """`sections`: the default values of each, which the document leaves out."""
    document: dict[str, Any] = {"version": 1} if project is None else {"version": 1, "project": project}
    for kind, found in exported.sections.items():
        document[kind] = [_entry(kind, each, sections) for each in found]
    return FleetResponse(document=document, left_out=list(exported.left_out))


def _entry(kind: FleetKind, stored: StoredFleetObject, sections: Mapping[FleetKind, Fields]) -> dict[str, Any]:
    usual = sections[kind]
    entry = {
        file_name(name): file_value(name, value)
        for name, value in stored.fields.items()
        if name not in usual or value != usual[name]
    }
    for part, found in stored.children.items():
        if found:
            entry[part] = [_entry(part, each, sections) for each in found]
    return entry


def _differing(outcomes: Sequence[FleetObjectOutcome]) -> list[FleetObjectOutcome]:
    return [each for each in outcomes if each.action is not FleetAction.NONE]


def _shown(outcome: FleetObjectOutcome) -> dict[str, Any]:
    changes = [
        FleetFieldChange(
            field=file_name(change.name),
            before=file_value(change.name, change.before),
            after=file_value(change.name, change.after),
        )
        for change in outcome.changes
    ]
    return {"section": outcome.kind, "device": outcome.owner, "changes": changes}


def _counts(outcomes: Sequence[FleetObjectOutcome]) -> FleetCounts:
    actions = [each.action for each in outcomes]
    return FleetCounts(
        create=actions.count(FleetAction.CREATE),
        change=actions.count(FleetAction.CHANGE),
        delete=actions.count(FleetAction.DELETE),
        unchanged=actions.count(FleetAction.NONE),
    )
