"""Catalogue routes: known boards and applications, as suggestions for device registration."""

from __future__ import annotations

from adapters.http.api.board_and_application_catalog.schemas import AppTypeResponse, BoardResponse
from adapters.http.core.caller_authentication import AllowedCallers
from adapters.http.core.operation import ApiBlueprint
from domain.devices.model import APPS, BOARDS


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
