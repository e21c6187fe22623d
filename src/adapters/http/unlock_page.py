"""The page behind the link of an unlock mail, `/account/unlock`. It has no script and loads nothing.

Opening it changes nothing, because mail scanners open links too; only its button does.
"""

from __future__ import annotations

from html import escape

from quart import Blueprint, Response, request

from adapters.http.core.callers import client_info, device_cookie_header, read_device_tokens
from domain.kernel.errors import ValidationFailed
from domain.sign_in.unlock_link import SignInUnlockLinkService

CONTENT_SECURITY_POLICY = "default-src 'none'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
UNLOCK_PATH = "/account/unlock"
MAX_TOKEN_LENGTH = 128


def unlock_page_blueprint(*, unlock: SignInUnlockLinkService) -> Blueprint:
    bp = Blueprint("unlock_page", __name__)

    @bp.get(UNLOCK_PATH)
    async def unlock_page() -> Response:
        token = request.args.get("token", "")[:MAX_TOKEN_LENGTH]
        return _text_page(
            "Sign in to Latchboard in this browser",
            "This lets this browser try to sign in while others are stopped after too many wrong passwords.",
            form=_form(UNLOCK_PATH, "Allow this browser to sign in", token),
        )

    @bp.post(UNLOCK_PATH)
    async def use_link() -> Response:
        token = (await request.form).get("token", "")[:MAX_TOKEN_LENGTH]
        try:
            tokens = await unlock.open_link(token, client=client_info(read_device_tokens()))
        except ValidationFailed:
            title = "This link is not valid"
            return _text_page(title, "It is wrong, expired or used. Request a new one where you sign in.", status=400)
        response = _text_page("This browser may sign in", "Go to the sign-in page and enter your password as usual.")
        response.headers["Set-Cookie"] = device_cookie_header(tokens)
        return response

    return bp


def _text_page(title: str, *paragraphs: str, form: str = "", status: int = 200) -> Response:
    """`form` is markup; all else is text."""
    body = "".join(f"<p>{escape(one)}</p>" for one in paragraphs)
    content = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"></head><body><h1>{escape(title)}</h1>{body}{form}</body></html>'
    )
    response = Response(content, status=status, content_type="text/html; charset=utf-8")
    response.headers["Content-Security-Policy"] = CONTENT_SECURITY_POLICY
    response.headers["Cache-Control"] = "no-store"
    return response


def _form(action: str, button: str, token: str) -> str:
    """Markup of a form that posts `token` to `action`."""
    hidden = f'<input type="hidden" name="token" value="{escape(token)}">'
    return f'<form method="post" action="{escape(action)}">{hidden}<p><button>{escape(button)}</button></p></form>'
