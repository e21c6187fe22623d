"""Small pages without script, for links that arrive by mail. They load nothing; their only actions are their own forms."""

from __future__ import annotations

from html import escape

from quart import Response

CONTENT_SECURITY_POLICY = "default-src 'none'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"


def text_page(title: str, *paragraphs: str, form: str = "", status: int = 200) -> Response:
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


def form(action: str, button: str, token: str) -> str:
    """Markup of a form that posts `token` to `action`."""
    hidden = f'<input type="hidden" name="token" value="{escape(token)}">'
    return f'<form method="post" action="{escape(action)}">{hidden}<p><button>{escape(button)}</button></p></form>'
