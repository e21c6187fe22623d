"""Ports of the sign-in with OpenID Connect (OpenID Connect Core 1.0)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from domain.kernel.ids import UserId
from domain.team.ports import TeamTx


@dataclass(frozen=True, slots=True)
class OidcProviderIdentity:
    """Who the provider says is signing in, from a verified ID token.

    `roles`: the values of the role claim. `authentication`: the values of `amr` and `acr`. `email_verified`: None when the
    provider does not say it."""

    issuer: str
    subject: str
    email: str
    email_verified: bool | None
    name: str
    roles: frozenset[str] = frozenset()
    authentication: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ExternalIdentity:
    """A user's identity at a provider: the pair of issuer and subject is all that a provider keeps unchanged."""

    issuer: str
    subject: str
    user_id: UserId
    created_ms: int
    last_used_ms: int


@dataclass(frozen=True, slots=True)
class OidcFlowSecrets:
    """What belongs to one sign-in: `state` comes back with the browser, `nonce` in the ID token, `verifier` goes with the code
    (PKCE, RFC 7636)."""

    state: str = field(repr=False)
    nonce: str = field(repr=False)
    verifier: str = field(repr=False)


class IdentityProvider(Protocol):
    """Port: the provider that the operator named."""

    @property
    def name(self) -> str:
        """How people call it."""

    async def authorization_url(self, secrets: OidcFlowSecrets) -> str:
        """Where the browser signs in. Raises Unavailable `PROVIDER_UNAVAILABLE`."""

    async def redeem(self, code: str, secrets: OidcFlowSecrets, issuer: str | None, now_ms: int) -> OidcProviderIdentity:
        """Exchange the code that the browser brought back. `issuer`: what came with it (RFC 9207).

        Raises Unauthenticated `PROVIDER_REJECTED` when the provider refuses the code or the ID token is not for this
        sign-in; Unavailable `PROVIDER_UNAVAILABLE`."""

    async def sign_out_url(self) -> str | None:
        """Where the browser signs out of the provider; None without such a page, or when the provider does not answer."""


class ExternalIdentityRepository(Protocol):
    async def get(self, issuer: str, subject: str) -> ExternalIdentity | None: ...

    async def find_by_user(self, user_id: UserId, issuer: str) -> ExternalIdentity | None: ...

    async def upsert(self, identity: ExternalIdentity) -> None: ...

    async def mark_state_used(self, state_hash: bytes, expires_ms: int) -> bool:
        """False if it was used before, also by a concurrent request."""

    async def delete_states_older_than(self, expires_ms: int, limit: int) -> int: ...


class OidcTx(TeamTx, Protocol):
    """The repositories of this part and of those below it."""

    @property
    def external_identities(self) -> ExternalIdentityRepository: ...
