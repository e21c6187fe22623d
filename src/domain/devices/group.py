"""A named set of devices of one project."""

from __future__ import annotations

from dataclasses import dataclass

from domain.kernel.ids import AccountId, GroupId, ProjectId


@dataclass(frozen=True, slots=True)
class DeviceGroup:
    """`name` is unique in the project."""

    group_id: GroupId
    account_id: AccountId
    project_id: ProjectId
    name: str
    description: str | None
    created_ms: int
