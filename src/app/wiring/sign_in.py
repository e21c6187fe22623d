"""Constructs the services by which people sign in: logins, sessions, second factors, unlock links, invitations."""

from __future__ import annotations

from adapters.storage.sql.unit_of_work import SqlUnitOfWork
from app.config.settings import Settings
from app.runtime.first_start_or_lost_database import finish_first_start
from app.wiring.adapters import ServiceAdapters
from app.wiring.oidc import OidcServices
from app.wiring.shared_ports import creating_ports, secret_ports, shared_ports
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
from domain.team.operator import OperatorAccountAndUserService


class SignInServices:
    def __init__(
        self, uow: SqlUnitOfWork, settings: Settings, adapters: ServiceAdapters, operator: OperatorAccountAndUserService
    ) -> None:
        self._shared, self._secret = shared_ports(uow, adapters), secret_ports(uow, adapters)
        ids, digest = adapters.ids, adapters.digest
        self.challenges = challenges = PasskeyChallengeCodec(ids=ids, digest=digest)
        verifier = PasskeyAssertionService(**self._shared, codec=adapters.passkeys, challenges=challenges)
        self.factors = factors = SecondFactorChecker(totp=adapters.totp, vault=adapters.vault, digest=digest, passkeys=verifier)
        devices = HmacKnownBrowserTokenCodec(ids=ids, digest=digest)
        issuer = SessionTokenIssuer(ids=ids, tokens=adapters.tokens, digest=digest)
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
            **creating_ports(uow, adapters),
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
