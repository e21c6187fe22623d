"""Boards and applications by name, for choosing from. They suggest: any text up to 64 characters is taken when registering."""

from __future__ import annotations

from quart import Blueprint

from adapters.http.auth import Access
from adapters.http.operation import operation
from adapters.http.schema import Reply
from domain.devices.catalog import APPS, BOARDS
from domain.devices.model import Profile

TAG = "Catalog"


class BoardReply(Reply):
    board_type: str
    name: str
    profile: Profile
    config_format: str


class AppReply(Reply):
    app_type: str
    name: str


def catalog_blueprint() -> Blueprint:
    bp = Blueprint("catalog", __name__, url_prefix="/api/v1")
    boards = [
        BoardReply(board_type=one.board_type, name=one.name, profile=one.profile, config_format=one.config_format)
        for one in BOARDS
    ]
    apps = [AppReply(app_type=one.app_type, name=one.name) for one in APPS]

    @operation(bp, "GET", "/catalog/boards", tag=TAG, access=Access.ANYONE, summary="List known boards")
    async def list_boards() -> list[BoardReply]:
        """Values for `boardType`. The list suggests; any other text up to 64 characters is accepted as well."""
        return boards

    @operation(bp, "GET", "/catalog/apps", tag=TAG, access=Access.ANYONE, summary="List known applications")
    async def list_apps() -> list[AppReply]:
        """Values for `appType`. The list suggests; any other text up to 64 characters is accepted as well."""
        return apps

    return bp
