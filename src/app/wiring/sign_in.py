"""Constructs the services by which people sign in: logins, sessions, second factors, unlock links,
invitations."""

from __future__ import annotations

from adapters.storage.sql.unit_of_work import SqlUnitOfWork
from app.config.settings import Settings
from app.runtime.first_start import finish_first_start
from app.wiring.adapters import Adapters
from app.wiring.oidc import OidcParts
from domain.accounts.factor_check import FactorChecker
from domain.accounts.first_run import FirstRunService
from domain.accounts.invitation_acceptance import InvitationAcceptance
from domain.accounts.invitations import InvitationService
from domain.accounts.login import LoginService
from domain.accounts.operator_accounts import AccountAdminService
from domain.accounts.passkey_registration import PasskeyRegistrationService
from domain.accounts.passkeys.challenges import PasskeyChallenges
from domain.accounts.passkeys.sign_in import PasskeySignInService
from domain.accounts.passkeys.verifier import PasskeyVerifier
from domain.accounts.recovery_codes import RecoveryCodeIssuer
from domain.accounts.second_factor import SecondFactorService
from domain.accounts.session_opener import SessionOpener
from domain.accounts.sessions import SessionService
from domain.accounts.step_up import StepUpService
from domain.accounts.token_issuer import SessionTokenIssuer
from domain.accounts.trusted_devices import TrustedDevices
from domain.accounts.unlock import UnlockService


class SignInServices:
    def __init__(self, uow: SqlUnitOfWork, settings: Settings, adapters: Adapters, operator: AccountAdminService) -> None:
        clock, ids, digest = adapters.clock, adapters.ids, adapters.digest
        self.challenges = challenges = PasskeyChallenges(ids=ids, digest=digest)
        verifier = PasskeyVerifier(uow=uow, clock=clock, codec=adapters.passkeys, challenges=challenges)
        self.factors = factors = FactorChecker(totp=adapters.totp, vault=adapters.vault, digest=digest, passkeys=verifier)
        devices = TrustedDevices(ids=ids, digest=digest)
        issuer = SessionTokenIssuer(ids=ids, tokens=adapters.tokens, digest=digest)
        opener = SessionOpener(issuer=issuer, devices=devices)
        self.logins = LoginService(
            uow=uow,
            clock=clock,
            hasher=adapters.login_hasher,
            opener=opener,
            devices=devices,
            factors=factors,
            ids=ids,
            digest=digest,
        )
        self.first_run = _create_first_run(settings, adapters, operator, self.logins)
        self.passkey_sign_ins = PasskeySignInService(
            uow=uow,
            clock=clock,
            codec=adapters.passkeys,
            challenges=challenges,
            verifier=verifier,
            opener=opener,
            digest=digest,
        )
        self.sessions = SessionService(uow=uow, clock=clock, issuer=issuer)
        self.step_ups = StepUpService(uow=uow, clock=clock, hasher=adapters.hasher, factors=factors)
        self._wire_factors(uow, settings, adapters, challenges)
        self._wire_unlock(uow, settings, adapters, devices)
        self._wire_invitations(uow, settings, adapters)

    def _wire_factors(self, uow: SqlUnitOfWork, settings: Settings, adapters: Adapters, challenges: PasskeyChallenges) -> None:
        clock, ids = adapters.clock, adapters.ids
        recovery_codes = RecoveryCodeIssuer(ids=ids, digest=adapters.digest)
        self.second_factors = SecondFactorService(
            uow=uow,
            clock=clock,
            vault=adapters.vault,
            totp=adapters.totp,
            recovery_codes=recovery_codes,
            requirement=settings.require_second_factor,
        )
        self.passkeys = PasskeyRegistrationService(
            uow=uow,
            clock=clock,
            ids=ids,
            codec=adapters.passkeys,
            challenges=challenges,
            recovery_codes=recovery_codes,
            requirement=settings.require_second_factor,
        )

    def _wire_unlock(self, uow: SqlUnitOfWork, settings: Settings, adapters: Adapters, devices: TrustedDevices) -> None:
        clock, ids, digest = adapters.clock, adapters.ids, adapters.digest
        self.unlock = UnlockService(
            uow=uow,
            clock=clock,
            ids=ids,
            digest=digest,
            mails=adapters.mail_queue,
            devices=devices,
            link_url=f"{settings.effective_public_url}/account/unlock?token=",
        )

    def _wire_invitations(self, uow: SqlUnitOfWork, settings: Settings, adapters: Adapters) -> None:
        clock, ids, digest = adapters.clock, adapters.ids, adapters.digest
        self.invitations = InvitationService(
            uow=uow,
            clock=clock,
            ids=ids,
            digest=digest,
            mailer=adapters.mailer if settings.smtp_url is not None else None,
            link_url=f"{settings.effective_public_url}/#/invitation/",
        )
        self.acceptance = InvitationAcceptance(uow=uow, clock=clock, ids=ids, hasher=adapters.login_hasher, digest=digest)
        self.oidc: OidcParts | None = None
        """Set when an identity provider is configured."""
        if settings.oidc_issuer is not None:
            self.oidc = OidcParts(uow, settings, adapters, logins=self.logins, invited=self.acceptance)

    async def close(self) -> None:
        if self.oidc is not None:
            await self.oidc.close()


def _create_first_run(
    settings: Settings, adapters: Adapters, operator: AccountAdminService, logins: LoginService
) -> FirstRunService:
    return FirstRunService(
        operator=operator,
        logins=logins,
        clock=adapters.clock,
        ids=adapters.ids,
        digest=adapters.digest,
        on_done=lambda: finish_first_start(settings.data_dir),
    )
