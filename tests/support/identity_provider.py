"""An OpenID Connect provider on a loopback port, made of Authlib's server side: an implementation that is not ours.

    with IdentityProvider(now_s=clock) as provider:
        provider.person = {"sub": "ada", "email": "ada@example.com", "email_verified": True}

It signs in whoever is asked for at once. What it says can be falsified: `claims` replaces claims of the ID token, `signing` its key or
algorithm, `lets_codes_be_used_again`, `is_away`.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import jwt
from authlib.oauth2 import OAuth2Request
from authlib.oauth2.rfc6749 import AuthorizationServer, ClientMixin
from authlib.oauth2.rfc6749.grants import AuthorizationCodeGrant
from authlib.oauth2.rfc6749.requests import BasicOAuth2Payload
from authlib.oauth2.rfc6750 import BearerTokenGenerator
from authlib.oauth2.rfc7636 import CodeChallenge
from authlib.oidc.core import AuthorizationCodeMixin, OpenIDCode
from joserfc.jwk import KeySet, RSAKey

CLIENT_ID, CLIENT_SECRET = "latchboard", "a-secret-of-two-parties"
SCOPES = "openid profile email"


@cache
def signing_key(number: int) -> RSAKey:
    return RSAKey.generate_key(2048, {"use": "sig", "alg": "RS256"}, auto_kid=True)


class Client(ClientMixin):
    redirect_uri = ""
    secret = CLIENT_SECRET
    auth_method = "client_secret_basic"

    def get_client_id(self) -> str:
        return CLIENT_ID

    def get_default_redirect_uri(self) -> str:
        return self.redirect_uri

    def get_allowed_scope(self, scope: str) -> str:
        return scope

    def check_redirect_uri(self, redirect_uri: str) -> bool:
        return redirect_uri == self.redirect_uri

    def check_client_secret(self, client_secret: str) -> bool:
        return client_secret == self.secret

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        return method == self.auth_method

    def check_response_type(self, response_type: str) -> bool:
        return response_type == "code"

    def check_grant_type(self, grant_type: str) -> bool:
        return grant_type == "authorization_code"


class Code(AuthorizationCodeMixin):
    def __init__(self, code: str, request: OAuth2Request) -> None:
        data = request.payload.data
        self.code, self.user = code, request.user
        self.code_challenge, self.code_challenge_method = data["code_challenge"], data["code_challenge_method"]
        self._redirect_uri, self._scope, self._nonce = request.payload.redirect_uri, request.payload.scope, data.get("nonce")

    def get_redirect_uri(self) -> str:
        return str(self._redirect_uri)

    def get_scope(self) -> str:
        return str(self._scope)

    def get_nonce(self) -> str | None:
        return self._nonce

    def get_auth_time(self) -> int | None:
        return None

    def get_acr(self) -> str | None:
        return None

    def get_amr(self) -> list[str] | None:
        return None


class IdentityProvider:
    def __init__(self, *, now_s: Callable[[], float] = time.time) -> None:
        self.now_s = now_s
        self.client = Client()
        self.person: dict[str, Any] = {}
        self.claims: dict[str, Any] = {}
        """Claims of the ID token that are replaced; None leaves one out."""
        self.userinfo: dict[str, Any] | None = None
        """What the user info endpoint says; None for the person."""
        self.forge: Callable[[dict[str, Any]], str] | None = None
        """Makes the ID token of its claims, in place of the provider's own signature."""
        self.document: dict[str, Any] = {}
        """Entries of the discovery document that are replaced."""
        self.lets_codes_be_used_again = False
        self.is_away = False
        self.calls: Counter[str] = Counter()
        self.codes: dict[str, Code] = {}
        self.users: dict[str, dict[str, Any]] = {}
        self.keys: list[RSAKey] = []
        self.rotations = 0
        self.rotate_key()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self))
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), name="identity provider")
        self.issuer = f"http://127.0.0.1:{self._http.server_port}"
        self.server = _server_of(self)

    def __enter__(self) -> IdentityProvider:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(5)

    def rotate_key(self) -> None:
        """A new signing key, and only that one."""
        self.keys = [signing_key(self.rotations)]
        self.rotations += 1

    def settings(self) -> dict[str, Any]:
        return {"oidc_issuer": self.issuer, "oidc_client_id": CLIENT_ID, "oidc_client_secret": CLIENT_SECRET}

    def id_token_claims(self) -> dict[str, Any]:
        now = int(self.now_s())
        everything = {"iss": self.issuer, "aud": CLIENT_ID, "iat": now, "exp": now + 300} | self.person | self.claims
        return {name: value for name, value in everything.items() if value is not None}

    def discovery(self) -> dict[str, Any]:
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "userinfo_endpoint": f"{self.issuer}/userinfo",
            "jwks_uri": f"{self.issuer}/jwks",
            "end_session_endpoint": f"{self.issuer}/sign-out",
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
        } | self.document

    def respond(self, method: str, uri: str, headers: dict[str, str], form: dict[str, str]) -> tuple[int, Any, list[Any]]:
        path = urlsplit(uri).path
        self.calls[path] += 1
        if self.is_away:
            return 503, "away", []
        match path:
            case "/.well-known/openid-configuration":
                return 200, self.discovery(), []
            case "/jwks":
                return 200, KeySet(self.keys).as_dict(private=False), []
            case "/userinfo":
                token = headers.get("Authorization", "").removeprefix("Bearer ")
                return (200, self.userinfo or self.users[token], []) if token in self.users else (401, {}, [])
            case "/authorize":
                request = self._request(method, uri, headers, dict(parse_qsl(urlsplit(uri).query)))
                grant = self.server.get_consent_grant(request, end_user=self.person)
                status, body, more = self.server.create_authorization_response(request, grant_user=self.person, grant=grant)
                return (
                    status,
                    body,
                    [(name, f"{value}&iss={self.issuer}" if name == "Location" else value) for name, value in more],
                )
            case "/token":
                return self.server.create_token_response(self._request(method, uri, headers, form))  # type: ignore[no-any-return]
        return 404, {}, []

    def _request(self, method: str, uri: str, headers: dict[str, str], values: dict[str, str]) -> OAuth2Request:
        request = Request(method, uri.replace("http:", "https:", 1), headers=headers)  # Authlib insists on TLS
        request.payload = BasicOAuth2Payload(values)
        request.values = values
        return request


class Request(OAuth2Request):
    values: dict[str, str]

    @property
    def form(self) -> dict[str, str]:
        return self.values

    @property
    def args(self) -> dict[str, str]:
        return self.values


def _server_of(provider: IdentityProvider) -> AuthorizationServer:
    class Server(AuthorizationServer):
        def query_client(self, client_id: str) -> Client | None:
            return provider.client if client_id == CLIENT_ID else None

        def save_token(self, token: dict[str, Any], request: OAuth2Request) -> None:
            provider.users[token["access_token"]] = request.user

        def create_oauth2_request(self, request: OAuth2Request) -> OAuth2Request:
            return request

        def handle_response(self, status: int, body: Any, headers: list[Any]) -> tuple[int, Any, list[Any]]:
            return status, body, headers

        def send_signal(self, name: str, *args: Any, **more: Any) -> None: ...

    class Grant(AuthorizationCodeGrant):
        TOKEN_ENDPOINT_AUTH_METHODS = ("client_secret_basic", "client_secret_post", "none")

        def save_authorization_code(self, code: str, request: OAuth2Request) -> None:
            provider.codes[code] = Code(code, request)

        def query_authorization_code(self, code: str, client: Client) -> Code | None:
            return provider.codes.get(code)

        def delete_authorization_code(self, authorization_code: Code) -> None:
            if not provider.lets_codes_be_used_again:
                del provider.codes[authorization_code.code]

        def authenticate_user(self, authorization_code: Code) -> dict[str, Any]:
            return authorization_code.user  # type: ignore[no-any-return]

    class IdTokens(OpenIDCode):
        def exists_nonce(self, nonce: str, request: OAuth2Request) -> bool:
            return False

        def resolve_client_private_key(self, client: Client) -> RSAKey:
            return provider.keys[0]

        def get_client_algorithm(self, client: Client) -> str:
            return "RS256"

        def get_encode_header(self, client: Client) -> dict[str, str]:
            return {"alg": "RS256", "kid": str(provider.keys[0].kid)}

        def get_compatible_claims(self, request: OAuth2Request) -> dict[str, Any]:
            return {}

        def generate_user_info(self, user: dict[str, Any], scope: str) -> dict[str, Any]:
            return provider.id_token_claims()

        def encode_id_token(self, token: dict[str, Any], request: OAuth2Request) -> str:
            signed = str(super().encode_id_token(token, request))
            if provider.forge is None:
                return signed
            return provider.forge(jwt.decode(signed, options={"verify_signature": False}))

    server = Server(scopes_supported=SCOPES.split())
    server.register_token_generator("default", BearerTokenGenerator(lambda *_, **__: f"token{time.monotonic_ns()}"))
    server.register_grant(Grant, [CodeChallenge(required=True), IdTokens(require_nonce=True)])
    return server


def _handler_of(provider: IdentityProvider) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._respond({})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            self._respond(dict(parse_qsl(body)))

        def _respond(self, form: dict[str, str]) -> None:
            uri = f"{provider.issuer}{self.path}"
            status, body, headers = provider.respond(self.command, uri, dict(self.headers.items()), form)
            content = (body if isinstance(body, str) else json.dumps(body)).encode()
            self.send_response(status)
            for name, value in headers:
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None: ...

    return Handler
