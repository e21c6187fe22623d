"""The dashboard at `/`: one page and its static files. It uses the public API.

Its Content-Security-Policy allows files and calls of this origin only, and no text may become script or markup
(`require-trusted-types-for`). There is no bundle: two dozen small modules are sent over one connection, each with an `ETag`, so
that a new release takes effect at once and an unchanged file costs one short response.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable

from quart import Blueprint, Response, abort, request

INDEX_PAGE = "index.html"
CONTENT_TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'none'; "
    "base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)


@dataclass(frozen=True, slots=True)
class StaticAsset:
    content: bytes
    content_type: str
    etag: str


def dashboard_blueprint() -> Blueprint:
    """`GET /` and `GET /dashboard/<path>`. The files are read once, when the blueprint is created."""
    bp = Blueprint("dashboard", __name__)
    assets = dict(_load_assets(files(__package__) / "assets"))

    def answer(name: str) -> Response:
        asset = assets.get(name)
        if asset is None:
            abort(404)
        response = Response(asset.content, content_type=asset.content_type)
        response.headers["Cache-Control"] = "no-cache"
        response.headers["Content-Security-Policy"] = CONTENT_SECURITY_POLICY
        response.set_etag(asset.etag)
        if request.if_none_match.contains(asset.etag):
            response.status_code = 304
            response.set_data(b"")
        return response

    @bp.get("/")
    async def page() -> Response:
        return answer(INDEX_PAGE)

    @bp.get("/dashboard/<path:name>")
    async def file(name: str) -> Response:
        return answer(name)

    return bp


def _load_assets(folder: Traversable, below: str = "") -> list[tuple[str, StaticAsset]]:
    found: list[tuple[str, StaticAsset]] = []
    for each in folder.iterdir():
        name = below + each.name
        if each.is_dir():
            found += _load_assets(each, f"{name}/")
        elif (kind := CONTENT_TYPES.get(each.name.rpartition(".")[2])) is not None:
            content = each.read_bytes()
            found.append((name, StaticAsset(content, kind, hashlib.sha256(content).hexdigest()[:20])))
    return found
