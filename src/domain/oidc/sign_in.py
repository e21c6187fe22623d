"""Sign-in with OpenID Connect: the authorization code flow with PKCE, bound to the browser that began it.

What belongs to one sign-in is sealed into a cookie, so no stranger can fill a table, and every instance can finish what another
began. The state that comes back must be the one in the cookie, and works once.
"""

from __future__ import annotations

import hmac
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass, field

from domain.kernel.clock import MINUTE_MS, Clock
from domain.kernel.dataclasses import service
from domain.kernel.errors import SecretUnreadable, ValidationFailed
from domain.kernel.ids import IdAndSecretGenerator
from domain.kernel.ports import Vault
from domain.kernel.unit_of_work import UnitOfWork
from domain.oidc.members import OidcMemberProvisioner
from domain.oidc.policy import OidcPolicy, check_return_path
from domain.oidc.ports import IdentityProvider, OidcFlowSecrets, OidcTx
from domain.sign_in.login import LoginService, SecondFactorNeeded
from domain.sign_in.model import ClientInfo
from domain.sign_in.policy import AttemptLimit, client_network
from domain.sign_in.ports import TokenHasher
from domain.sign_in.sessions import OpenedSession

SIGN_IN_TTL_MS = 10 * MINUTE_MS
"""From the button to the return from the provider."""
STATE_LENGTH = 43
VERIFIER_LENGTH = 64
"""RFC 7636 allows 43 to 128 characters."""
SIGN_IN_ATTEMPTS = AttemptLimit(60, 15 * MINUTE_MS)
"""Returns from the provider without success, from one address block: each makes the service call the provider."""
BOUND_TO = "oidc-sign-in"
MAX_COOKIE_LENGTH = 2_048


@dataclass(frozen=True, slots=True)
class OidcAuthorizationResponse:
    """The parameters with which the browser returns from the provider (RFC 6749, 4.1.2; RFC 9207)."""

    state: str
    code: str = field(repr=False)
    error: str = ""
    issuer: str | None = None


@service
class OidcSignInService:
    uow: UnitOfWork[OidcTx]
    clock: Clock
    ids: IdAndSecretGenerator
    digest: TokenHasher
    vault: Vault
    provider: IdentityProvider
    policy: OidcPolicy
    members: OidcMemberProvisioner
    logins: LoginService

    async def begin(self, return_path: str = "") -> tuple[str, str]:
        """The address of the provider's page, and a cookie that comes back with the browser within `SIGN_IN_TTL_MS`.

        Raises ValidationFailed for a `return_path` that is no page of the dashboard; Unavailable `PROVIDER_UNAVAILABLE`."""
        check_return_path(return_path)
        random = self.ids.random_alphanumeric
        secrets = OidcFlowSecrets(random(STATE_LENGTH), random(STATE_LENGTH), random(VERIFIER_LENGTH))
        url = await self.provider.authorization_url(secrets)
        expires_ms = self.clock.now_ms() + SIGN_IN_TTL_MS
        content = json.dumps([secrets.state, secrets.nonce, secrets.verifier, return_path, expires_ms])
        return url, urlsafe_b64encode(self.vault.seal(content, BOUND_TO)).decode()

    async def finish(
        self, returned: OidcAuthorizationResponse, cookie: str, *, client: ClientInfo
    ) -> tuple[OpenedSession | SecondFactorNeeded, str]:
        """The outcome, and the page of the dashboard to return to.

        Raises ValidationFailed `SIGN_IN_MISMATCH` for a return that this browser did not begin, that is too late or was used;
        Unauthenticated `PROVIDER_REJECTED`; PermissionDenied; RateLimited; Unavailable."""
        secrets, return_path = self._open(cookie, returned.state)
        subject = f"oidc:{client_network(client.address)}"
        async with self.uow.write(caller=None) as tx:
            attempts, now_ms = await tx.login_failures.get_for_update(subject), self.clock.now_ms()
            SIGN_IN_ATTEMPTS.check(attempts, now_ms, "sign-ins that failed")
            state_hash = self.digest.sha256(secrets.state)
            if not await tx.external_identities.mark_state_used(state_hash, now_ms + SIGN_IN_TTL_MS):
                raise mismatch_error()
            await tx.login_failures.upsert(SIGN_IN_ATTEMPTS.count(attempts, subject, now_ms))
        if returned.error or not returned.code:
            raise ValidationFailed(
                "The provider did not sign you in. Try again, or ask its administrator.", code="PROVIDER_REFUSED"
            )
        identity = await self.provider.redeem(returned.code, secrets, returned.issuer, self.clock.now_ms())
        candidate = await self.members.prepare(identity)
        now_ms = self.clock.now_ms()
        async with self.uow.write(caller=None) as tx:
            member, account = await self.members.resolve(tx, candidate, client, now_ms)
            await tx.login_failures.delete(subject)
            result = await self.logins.admit(
                tx,
                member,
                account,
                client,
                now_ms,
                how=f" with {self.provider.name}",
                factor_at_provider=self.policy.replaces_second_factor(identity),
                ends_ms=now_ms + self.policy.session_ms,
            )
        return result, return_path

    def _open(self, cookie: str, state: str) -> tuple[OidcFlowSecrets, str]:
        """Raises ValidationFailed `SIGN_IN_MISMATCH`."""
        try:
            sealed = urlsafe_b64decode(cookie[:MAX_COOKIE_LENGTH].encode())
            own_state, nonce, verifier, return_path, expires_ms = json.loads(self.vault.open(sealed, BOUND_TO))
        except (ValueError, SecretUnreadable):
            raise mismatch_error() from None
        if not hmac.compare_digest(own_state.encode(), state.encode()) or self.clock.now_ms() >= expires_ms:
            raise mismatch_error()
        return OidcFlowSecrets(own_state, nonce, verifier), return_path


def mismatch_error() -> ValidationFailed:
    return ValidationFailed(
        "This sign-in was not begun in this browser, took longer than ten minutes, or was used already. Begin again.",
        code="SIGN_IN_MISMATCH",
    )
