"""Glewlwyd, an identity provider of Debian, on a loopback port: with a client for the service and a person, as an administrator
makes them through its API.

    with Glewlwyd(folder, redirect_uri) as provider:
        back = await provider.sign_in(authorization_url)
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from support.ports import free_ports
from support.waiting import OPERATION_TIMEOUT_S, TIMEOUT_S

BINARY = shutil.which("glewlwyd")
REQUIRED = "LATCHBOARD_REQUIRE_GLEWLWYD"
SCHEMA = Path("/usr/share/dbconfig-common/data/glewlwyd/install/sqlite3")
MODULES = Path("/usr/lib/glewlwyd")
CLIENT_ID, CLIENT_SECRET = "latchboard", "a-secret-of-two"
USER, PASSWORD, EMAIL = "grace", "four words of hers", "grace@example.com"


def require_glewlwyd() -> None:
    if BINARY is None and not os.environ.get(REQUIRED):
        pytest.skip(f"Glewlwyd is not installed; set {REQUIRED}=1 to make this a failure")
    assert BINARY is not None, f"Glewlwyd is not installed and {REQUIRED} is set; `make apt` installs it"


class Glewlwyd:
    def __init__(self, folder: Path, redirect_uri: str) -> None:
        self.folder = folder
        self.redirect_uri = redirect_uri
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        self.issuer = f"{self.url}/api/oidc"
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Glewlwyd:
        self.folder.mkdir(parents=True, exist_ok=True)
        database = sqlite3.connect(self.folder / "glewlwyd.db")
        database.executescript(SCHEMA.read_text())
        database.close()
        config = self.folder / "glewlwyd.conf"
        config.write_text(self._config())
        with (self.folder / "glewlwyd.log").open("wb") as log:
            self._process = subprocess.Popen([str(BINARY), "-c", str(config)], stdout=log, stderr=subprocess.STDOUT)
        try:
            self._wait_until_ready()
            self._administrate()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop()

    async def sign_in(self, authorization_url: str) -> str:
        """As its login page does: the person enters the password and allows the client. Where the browser is sent then."""
        async with httpx.AsyncClient(timeout=TIMEOUT_S) as browser:
            answer = await browser.post(f"{self.url}/api/auth/", json={"username": USER, "password": PASSWORD})
            assert answer.status_code == 200, answer.text
            allowed = {"scope": "openid email profile"}
            answer = await browser.put(f"{self.url}/api/auth/grant/{CLIENT_ID}/", json=allowed)
            assert answer.status_code == 200, answer.text
            answer = await browser.get(f"{authorization_url}&g_continue")
            assert answer.status_code == 302, answer.text
            return str(answer.headers["Location"])

    def _stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(TIMEOUT_S)

    def _config(self) -> str:
        paths = {
            "user_module_path": "user",
            "client_module_path": "client",
            "user_auth_scheme_module_path": "scheme",
            "plugin_module_path": "plugin",
        }
        lines = [f'{name}="{MODULES / folder}"' for name, folder in paths.items()]
        return "\n".join(
            [
                f"port={self._port}",
                'bind_address="127.0.0.1"',
                f'external_url="{self.url}"',
                'api_prefix="api"',
                'login_url="login.html"',
                'log_mode="console"',
                'log_level="WARNING"',
                "login_api_enabled=true",
                'admin_scope="g_admin"',
                'profile_scope="g_profile"',
                'hash_algorithm="SHA512"',
                'session_key="GLEWLWYD2_SESSION_ID"',
                *lines,
                f'database={{ type="sqlite3" path="{self.folder / "glewlwyd.db"}" }};',
                "",
            ]
        )

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            assert self._process is not None
            assert self._process.poll() is None, (self.folder / "glewlwyd.log").read_text()
            try:
                httpx.get(f"{self.url}/config", timeout=OPERATION_TIMEOUT_S)
            except httpx.TransportError:
                assert time.monotonic() < deadline, "Glewlwyd does not respond"
                time.sleep(0.05)
            else:
                return

    def _administrate(self) -> None:
        with httpx.Client(base_url=f"{self.url}/api/", timeout=TIMEOUT_S) as admin:

            def post(path: str, content: dict[str, Any]) -> None:
                answer = admin.post(path, json=content)
                assert answer.status_code == 200, f"{path}: {answer.status_code} {answer.text}"

            post("auth/", {"username": "admin", "password": "password"})
            post(
                "mod/plugin/", {"module": "oidc", "name": "oidc", "display_name": "OpenID Connect", "parameters": self._plugin()}
            )
            for scope in ("email", "profile"):
                post(
                    "scope/",
                    {"name": scope, "display_name": scope, "description": scope, "password_required": True, "scheme": {}},
                )
            client = {"client_id": CLIENT_ID, "name": "Latchboard", "confidential": True, "enabled": True, "scope": []}
            client |= {"password": CLIENT_SECRET, "client_secret": CLIENT_SECRET, "redirect_uri": [self.redirect_uri]}
            post(
                "client/?source=database",
                client | {"authorization_type": ["code"], "token_endpoint_auth_method": ["client_secret_basic"]},
            )
            person = {"username": USER, "password": PASSWORD, "name": "Grace Hopper", "email": EMAIL, "enabled": True}
            post("user/", person | {"scope": ["openid", "email", "profile"]})

    def _plugin(self) -> dict[str, Any]:
        key = rsa.generate_private_key(65_537, 2_048)
        return {
            "iss": self.issuer,
            "jwt-type": "rsa",
            "jwt-key-size": "256",
            "key": key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(),
            "cert": key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode(),
            "access-token-duration": 600,
            "refresh-token-duration": 86_400,
            "code-duration": 600,
            "auth-type-code-enabled": True,
            "allow-non-oidc": False,
            "pkce-allowed": True,
            "pkce-method-plain-allowed": False,
            "subject-type": "public",
            "name-claim": "on-demand",
            "name-claim-scope": ["profile"],
            "email-claim": "on-demand",
            "email-claim-scope": ["email"],
            "oauth-as-iss-id": True,
            "jwks-show": True,
        }
