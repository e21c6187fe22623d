"""Sign-in with a real identity provider, which is not ours: Debian's Glewlwyd."""

from __future__ import annotations

from pathlib import Path

import httpx

from support import glewlwyd
from support.glewlwyd import Glewlwyd, require_glewlwyd
from support.service import Service
from support.waiting import TIMEOUT_S

CALLBACK = "/dashboard/session/oidc/callback"
OWN_PAGE = {"X-CSRF-Protection": "1"}


async def test_a_person_of_glewlwyd_signs_in_as_the_same_user_each_time(tmp_path: Path) -> None:
    require_glewlwyd()
    service = Service(
        tmp_path / "service",
        LATCHBOARD_OIDC_CLIENT_ID=glewlwyd.CLIENT_ID,
        LATCHBOARD_OIDC_CLIENT_SECRET=glewlwyd.CLIENT_SECRET,
        LATCHBOARD_OIDC_AUTO_CREATE="true",
        LATCHBOARD_OIDC_DEFAULT_ROLE="Viewer",
        LATCHBOARD_OIDC_TRUST_EMAIL="true",  # it sends no email_verified
    )
    url = f"http://localhost:{service.port}"  # it accepts http for localhost only
    with Glewlwyd(tmp_path / "provider", f"{url}{CALLBACK}") as provider:
        service.settings |= {"LATCHBOARD_PUBLIC_URL": url, "LATCHBOARD_OIDC_ISSUER": provider.issuer}
        with service:
            first, again = [await sign_in(service, provider, url) for _ in range(2)]
    assert (first["email"], first["name"], first["role"]) == (glewlwyd.EMAIL, "Grace Hopper", "Viewer")
    assert again["userId"] == first["userId"]


async def sign_in(service: Service, provider: Glewlwyd, url: str) -> dict[str, str]:
    async with httpx.AsyncClient(base_url=service.url, headers=OWN_PAGE, timeout=TIMEOUT_S) as browser:
        begun = await browser.post("/dashboard/session/oidc/begin", json={})
        assert begun.status_code == 200, begun.text
        back = await provider.sign_in(begun.json()["url"])
        assert back.startswith(f"{url}{CALLBACK}?")
        answer = await browser.get(back.removeprefix(url))
        assert answer.headers["Location"] == "/#/signed-in/"
        again = await browser.get(back.removeprefix(url))  # the code is used
        assert again.headers["Location"] == "/#/sign-in-failed/SIGN_IN_MISMATCH"
        tokens = (await browser.post("/dashboard/session/refresh")).json()
        me = await browser.get("/api/v1/auth/me", headers={"Authorization": f"Bearer {tokens['accessToken']}"})
        found: dict[str, str] = me.json()
        return found
