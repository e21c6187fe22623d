"""Constructs the services by which people sign in: logins, sessions, second factors, unlock links, invitations, and OpenID
Connect if a provider is configured.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from adapters.delivery.address_guard import AddressGuard, GuardedResolver
from adapters.storage.sql.unit_of_work import SqlUnitOfWork
from app.config.checks import parse_role_map
from app.config.settings import Settings
from app.runtime.start import StartupError, finish_first_start
from app.wiring.adapters import ServiceAdapters
from domain.kernel.clock import DAY_MS, HOUR_MS
from domain.oidc.members import OidcMemberProvisioner
from domain.oidc.policy import OidcPolicy
from domain.oidc.sign_in import OidcSignInService
from domain.sign_in.login import LoginService
from domain.sign_in.passkeys import PasskeyManagementService, PasskeySignInService
from domain.sign_in.password_change import PasswordChangeService
from domain.sign_in.policy import HmacKnownBrowserTokenCodec
from domain.sign_in.second_factor import PasskeyAssertionService, PasskeyChallengeCodec, RecoveryCodeIssuer, SecondFactorChecker
from domain.sign_in.second_factor_settings import SecondFactorService
from domain.sign_in.sessions import SessionOpener, SessionTokenIssuer, UserSessionService
from domain.sign_in.step_up import StepUpService
from domain.sign_in.unlock_link import SignInUnlockLinkService
from domain.team.first_run import FirstRunService
from domain.team.invitations import InvitationAcceptanceService, InvitationService
from domain.team.operator import OperatorService

if TYPE_CHECKING:
    from adapters.oidc.provider import OidcIdentityProvider

CALLBACK_PATH = "/dashboard/session/oidc/callback"
STRONG_METHOD = "mfa"
"""The value of `amr` for several factors (RFC 8176)."""


class SignInServices:
    def __init__(self, uow: SqlUnitOfWork, settings: Settings, adapters: ServiceAdapters, operator: OperatorService) -> None:
        self._shared, self._secret = adapters.shared_ports(uow), adapters.secret_ports(uow)
        ids, digest = adapters.ids, adapters.digest
        self.challenges = challenges = PasskeyChallengeCodec(ids=ids, digest=digest)
        verifier = PasskeyAssertionService(**self._shared, codec=adapters.passkeys, challenges=challenges)
        self.factors = factors = SecondFactorChecker(totp=adapters.totp, vault=adapters.vault, digest=digest, passkeys=verifier)
        devices = HmacKnownBrowserTokenCodec(ids=ids, digest=digest)
        issuer = SessionTokenIssuer(ids=ids, tokens=adapters.tokens, digest=digest, max_ms=settings.session_days * DAY_MS)
        opener = SessionOpener(issuer=issuer, devices=devices)
        self.logins = LoginService(**self._secret, hasher=adapters.login_hasher, opener=opener, devices=devices, factors=factors)
        self.first_run = FirstRunService(
            operator=operator,
            logins=self.logins,
            clock=adapters.clock,
            ids=ids,
            digest=digest,
            on_done=lambda: finish_first_start(settings.data_dir),
        )
        self.passkey_sign_ins = PasskeySignInService(
            **self._shared, codec=adapters.passkeys, challenges=challenges, verifier=verifier, opener=opener, digest=digest
        )
        self.sessions = UserSessionService(**self._shared, issuer=issuer)
        self.step_ups = StepUpService(**self._shared, hasher=adapters.hasher, factors=factors)
        self._wire_factors(uow, settings, adapters)
        self._wire_passwords(settings, adapters, devices)
        self._wire_invitations(settings, adapters)
        self.oidc: OidcServices | None = None
        """Set when an identity provider is configured."""
        if settings.oidc_issuer is not None:
            self.oidc = OidcServices(uow, settings, adapters, logins=self.logins, invited=self.acceptance)

    def _wire_factors(self, uow: SqlUnitOfWork, settings: Settings, adapters: ServiceAdapters) -> None:
        recovery_codes = RecoveryCodeIssuer(ids=adapters.ids, digest=adapters.digest)
        self.second_factors = SecondFactorService(
            **self._shared,
            vault=adapters.vault,
            totp=adapters.totp,
            recovery_codes=recovery_codes,
            requirement=settings.require_second_factor,
        )
        self.passkeys = PasskeyManagementService(
            **adapters.creating_ports(uow),
            codec=adapters.passkeys,
            challenges=self.challenges,
            recovery_codes=recovery_codes,
            requirement=settings.require_second_factor,
        )

    def _wire_passwords(self, settings: Settings, adapters: ServiceAdapters, devices: HmacKnownBrowserTokenCodec) -> None:
        self.passwords = PasswordChangeService(
            **self._secret, hasher=adapters.hasher, mailer=adapters.mailer, translator=adapters.translator
        )
        self.unlock = SignInUnlockLinkService(
            **self._secret,
            mails=adapters.mail_queue,
            devices=devices,
            link_url=f"{settings.effective_public_url}/account/unlock?token=",
            translator=adapters.translator,
        )

    def _wire_invitations(self, settings: Settings, adapters: ServiceAdapters) -> None:
        self.invitations = InvitationService(
            **self._secret,
            mailer=adapters.mailer if settings.smtp_url is not None else None,
            link_url=f"{settings.effective_public_url}/#/invitation/",
            translator=adapters.translator,
        )
        self.acceptance = InvitationAcceptanceService(**self._secret, hasher=adapters.login_hasher)

    async def close(self) -> None:
        if self.oidc is not None:
            await self.oidc.close()


class OidcServices:
    """The sign-in with OpenID Connect, and what must be closed at the end."""

    def __init__(
        self,
        uow: SqlUnitOfWork,
        settings: Settings,
        adapters: ServiceAdapters,
        *,
        logins: LoginService,
        invited: InvitationAcceptanceService,
    ) -> None:
        """Raises StartupError for certificates that cannot be used."""
        policy = _create_policy(settings)
        own, others = GuardedResolver(AddressGuard(allow_private=True)), GuardedResolver(AddressGuard())
        self._resolvers = (own, others)
        self.provider = _create_provider(settings, adapters, own, others)
        self.sign_in = OidcSignInService(
            **adapters.secret_ports(uow),
            vault=adapters.vault,
            provider=self.provider,
            policy=policy,
            members=OidcMemberProvisioner(
                uow=uow, ids=adapters.ids, hasher=adapters.login_hasher, policy=policy, invited=invited
            ),
            logins=logins,
        )

    async def close(self) -> None:
        await self.provider.close()
        for resolver in self._resolvers:
            resolver.close()


def _create_policy(settings: Settings) -> OidcPolicy:
    return OidcPolicy(
        auto_create=settings.oidc_auto_create,
        trust_email=settings.oidc_trust_email,
        governs_roles=bool(settings.oidc_role_claim),
        role_map=parse_role_map(settings.oidc_role_map),
        default_role=settings.oidc_default_role,
        account_id=settings.oidc_account,
        provider_factor=settings.oidc_second_factor,
        strong_values=frozenset({STRONG_METHOD, *settings.oidc_acr_values.split()}),
        session_ms=settings.oidc_session_hours * HOUR_MS,
    )


def _create_provider(
    settings: Settings, adapters: ServiceAdapters, own: GuardedResolver, others: GuardedResolver
) -> OidcIdentityProvider:
    from adapters.delivery.guarded_transport import GuardedTransport
    from adapters.oidc.provider import OidcClientConfig, OidcIdentityProvider, OidcProviderHttpClient

    issuer, public_url = settings.oidc_issuer or "", settings.effective_public_url
    secret = settings.oidc_client_secret
    config = OidcClientConfig(
        issuer=issuer,
        client_id=settings.oidc_client_id or "",
        client_secret="" if secret is None else secret.get_secret_value(),
        redirect_uri=f"{public_url}{CALLBACK_PATH}",
        sign_out_return=f"{public_url}/",
        name=settings.oidc_name or urlsplit(issuer).hostname or issuer,
        scopes=settings.oidc_scopes,
        role_claim=settings.oidc_role_claim,
        acr_values=settings.oidc_acr_values,
    )
    tls = _create_tls(settings)
    http = OidcProviderHttpClient(issuer, own=GuardedTransport(own, tls), others=GuardedTransport(others, tls))
    return OidcIdentityProvider(config, http, adapters.clock)


def _create_tls(settings: Settings) -> ssl.SSLContext:
    tls = ssl.create_default_context()
    if settings.oidc_ca_file is not None:
        try:
            tls.load_verify_locations(cafile=settings.oidc_ca_file)
        except (OSError, ssl.SSLError) as error:
            raise StartupError(
                f"The certificates in {settings.oidc_ca_file} cannot be used: {error}. "
                "Set LATCHBOARD_OIDC_CA_FILE to a file of PEM certificates."
            ) from None
    return tls
