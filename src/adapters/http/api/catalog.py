"""Catalogue routes: known boards and applications, as suggestions for device registration.

Response models of the catalogue.
"""

from __future__ import annotations

from pydantic import Field

from adapters.http.core.callers import AllowedCallers
from adapters.http.core.operation import ApiBlueprint
from adapters.http.core.schemas import ResponseModel
from domain.devices.catalog import APPS, BOARDS
from domain.devices.model import FirmwareProfile


class BoardResponse(ResponseModel):
    id: str = Field(description="The same as `boardType`.")
    board_type: str
    name: str
    description: str
    profile: FirmwareProfile
    config_format: str


class AppTypeResponse(ResponseModel):
    id: str = Field(description="The same as `appType`.")
    app_type: str
    name: str
    description: str


def catalog_blueprint() -> ApiBlueprint:
    bp = ApiBlueprint("catalog", "Catalog")
    boards = [BoardResponse.of(one, id=one.board_type) for one in BOARDS]
    apps = [AppTypeResponse.of(one, id=one.app_type) for one in APPS]

    @bp.operation("GET /catalog/boards", AllowedCallers.ANYONE, "List known boards")
    async def list_boards() -> list[BoardResponse]:
        """Values for `boardType`. The list is a suggestion: any text of up to 64 characters is accepted."""
        return boards

    @bp.operation("GET /catalog/apps", AllowedCallers.ANYONE, "List known applications")
    async def list_app_types() -> list[AppTypeResponse]:
        """Values for `appType`. The list is a suggestion: any text of up to 64 characters is accepted."""
        return apps

    return bp
