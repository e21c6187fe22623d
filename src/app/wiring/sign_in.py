"""Constructs the services by which people sign in: logins, sessions, second factors, unlock links."""

from __future__ import annotations

from adapters.storage.sql.unit_of_work import SqlUnitOfWork
from app.config.settings import Settings
from app.wiring.adapters import Adapters
from domain.accounts.factor_check import FactorChecker
from domain.accounts.login import LoginService
from domain.accounts.second_factor import SecondFactorService
from domain.accounts.sessions import SessionService
from domain.accounts.step_up import StepUpService
from domain.accounts.token_issuer import SessionTokenIssuer
from domain.accounts.trusted_devices import TrustedDevices
from domain.accounts.unlock import UnlockService


class SignInServices:
    def __init__(self, uow: SqlUnitOfWork, settings: Settings, adapters: Adapters) -> None:
        clock, ids, digest = adapters.clock, adapters.ids, adapters.digest
        factors = FactorChecker(totp=adapters.totp, vault=adapters.vault, digest=digest)
        devices = TrustedDevices(ids=ids, digest=digest)
        issuer = SessionTokenIssuer(ids=ids, tokens=adapters.tokens, digest=digest)
        self.logins = LoginService(
            uow=uow,
            clock=clock,
            hasher=adapters.login_hasher,
            issuer=issuer,
            devices=devices,
            factors=factors,
            ids=ids,
            digest=digest,
        )
        self.sessions = SessionService(uow=uow, clock=clock, issuer=issuer)
        self.step_ups = StepUpService(uow=uow, clock=clock, hasher=adapters.hasher, factors=factors)
        self.second_factors = SecondFactorService(
            uow=uow,
            clock=clock,
            ids=ids,
            vault=adapters.vault,
            totp=adapters.totp,
            factors=factors,
            requirement=settings.require_second_factor,
        )
        self.unlock = UnlockService(
            uow=uow,
            clock=clock,
            ids=ids,
            digest=digest,
            mails=adapters.mail_queue,
            devices=devices,
            link_url=f"{settings.effective_public_url}/account/unlock?token=",
        )
