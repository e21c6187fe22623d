"""The dashboard at `/`: one page and its static files. It uses the public API.

Its Content-Security-Policy allows files and calls of this origin only, and no text may become script or markup
(`require-trusted-types-for`). There is no bundle: small modules are sent over one connection, compressed once when the program
starts, each with an `ETag`, so that a new release takes effect at once and an unchanged file costs one short response.
"""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable

from quart import Blueprint, Response, abort

from adapters.http.core.assets import Asset, asset_response

INDEX_PAGE = "index.html"
SERVICE_WORKER = "service-worker.js"
CONTENT_TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "json": "application/json",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "png": "image/png",
    "webmanifest": "application/manifest+json",
}
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; manifest-src 'self'; "
    "worker-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types latchboard-worker"
)
"""The one policy `latchboard-worker` makes the address of the service worker, a constant, and nothing else."""


def dashboard_blueprint() -> Blueprint:
    """`GET /` and `GET /dashboard/<path>`. The files are read once, when the blueprint is created, and each is
    compressed once, for its first request."""
    bp = Blueprint("dashboard", __name__)
    assets = dict(_load_assets(files(__package__) / "assets"))

    def answer(name: str) -> Response:
        asset = assets.get(name)
        if asset is None:
            abort(404)
        response = asset_response(asset)
        response.headers["Content-Security-Policy"] = CONTENT_SECURITY_POLICY
        if name == SERVICE_WORKER:
            response.headers["Service-Worker-Allowed"] = "/"
        return response

    @bp.get("/")
    async def page() -> Response:
        return answer(INDEX_PAGE)

    @bp.get("/dashboard/<path:name>")
    async def file(name: str) -> Response:
        return answer(name)

    return bp


def _load_assets(folder: Traversable, below: str = "") -> list[tuple[str, Asset]]:
    found: list[tuple[str, Asset]] = []
    for each in folder.iterdir():
        name = below + each.name
        if each.is_dir():
            found += _load_assets(each, f"{name}/")
        elif (kind := CONTENT_TYPES.get(each.name.rpartition(".")[2])) is not None:
            found.append((name, Asset(each.read_bytes(), kind)))
    return found
