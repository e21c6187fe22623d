"""The pages behind links from mails: `/account/unlock`.

Opening a page changes nothing, because mail scanners open links too; only its button does.
"""

from __future__ import annotations

from quart import Blueprint, Response, request

from adapters.http.core.caller_authentication import client_info
from adapters.http.core.known_browser_cookie import device_cookie_header, read_device_tokens
from adapters.http.login_unlock_page.html_page import form, text_page
from domain.kernel.errors import ValidationFailed
from domain.sign_in.unlock_link import SignInUnlockLinkService

UNLOCK_PATH = "/account/unlock"
MAX_TOKEN_LENGTH = 128


def unlock_page_blueprint(*, unlock: SignInUnlockLinkService) -> Blueprint:
    bp = Blueprint("unlock_page", __name__)

    @bp.get(UNLOCK_PATH)
    async def unlock_page() -> Response:
        token = request.args.get("token", "")[:MAX_TOKEN_LENGTH]
        return text_page(
            "Sign in to Latchboard in this browser",
            "This lets this browser try to sign in while others are stopped after too many wrong passwords.",
            form=form(UNLOCK_PATH, "Allow this browser to sign in", token),
        )

    @bp.post(UNLOCK_PATH)
    async def use_link() -> Response:
        token = (await request.form).get("token", "")[:MAX_TOKEN_LENGTH]
        try:
            tokens = await unlock.open_link(token, client=client_info(read_device_tokens()))
        except ValidationFailed:
            title = "This link is not valid"
            return text_page(title, "It is wrong, expired or used. Request a new one where you sign in.", status=400)
        response = text_page("This browser may sign in", "Go to the sign-in page and enter your password as usual.")
        response.headers["Set-Cookie"] = device_cookie_header(tokens)
        return response

    return bp
