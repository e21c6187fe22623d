"""The unlock link: a user whose logins are throttled because strangers guess gets a link by mail.

Opening it makes the browser one of the user's devices, with an allowance of its own. The answer to a request is the same for an
unknown email, and the mail is sent in the background, so that nobody learns from its time who has an account.
"""

from __future__ import annotations

from dataclasses import replace

from domain.accounts.model import User
from domain.accounts.policy import EMAIL_MAX_LENGTH, TranslatableMailTemplate, choose_language, normalize_email
from domain.accounts.ports import BackgroundMailer, Translator
from domain.kernel.clock import HOUR_MS, MINUTE_MS, Clock, is_of_earlier_clock
from domain.kernel.dataclasses import service
from domain.kernel.domain_event import EventKind, event_of
from domain.kernel.errors import ValidationFailed
from domain.kernel.ids import IdAndSecretGenerator
from domain.kernel.unit_of_work import UnitOfWork
from domain.sign_in.model import ClientInfo, SignInUnlockLink
from domain.sign_in.policy import AttemptLimit, HmacKnownBrowserTokenCodec, client_network
from domain.sign_in.ports import SignInTx, TokenHasher

UNLOCK_REQUESTS = AttemptLimit(60, HOUR_MS)
"""Requests for an unlock link from one address block."""
UNLOCK_LINK_TTL_MS = HOUR_MS
UNLOCK_COOLDOWN_MS = 55 * MINUTE_MS
"""Less than a link lives: whoever asks for links in somebody's name, that user always has a mail with a valid one."""
TOKEN_LENGTH = 40
MAIL = TranslatableMailTemplate(
    "Sign in to Latchboard in this browser",
    """Hello {name},

somebody, probably you, could not sign in as {email} because of too many wrong passwords.
Open this link in the browser that you want to sign in with, and then enter your password as usual:

{link}

The link is valid for {minutes} minutes and can be used once. It does not sign anybody in without your password.
If you did not ask for it, you can ignore this mail.
""",
)


@service
class SignInUnlockLinkService:
    """`link_url`: the page that a link opens; the token is appended."""

    uow: UnitOfWork[SignInTx]
    clock: Clock
    ids: IdAndSecretGenerator
    digest: TokenHasher
    mails: BackgroundMailer
    devices: HmacKnownBrowserTokenCodec
    link_url: str
    translator: Translator

    async def request_link(self, email: str, *, client: ClientInfo, language: str) -> None:
        """`language`: for who has stored none. Raises RateLimited when this address block has asked too often."""
        email = normalize_email(email)[:EMAIL_MAX_LENGTH]
        now_ms = self.clock.now_ms()
        subject = f"unlock:{client_network(client.address)}"
        token = self.ids.random_alphanumeric(TOKEN_LENGTH)
        async with self.uow.write(caller=None) as tx:
            requests = await tx.login_failures.get_for_update(subject)
            UNLOCK_REQUESTS.check(requests, now_ms, "requests for a link")
            await tx.login_failures.upsert(UNLOCK_REQUESTS.count(requests, subject, now_ms))
            user = await tx.users.find_by_email(email)
            link = None if user is None else await tx.unlock_links.get_for_update(user.user_id)
            if user is None or (link is not None and _is_cooling_down(link, now_ms)):
                return
            language = await choose_language(tx, user, language)
            expires_ms = now_ms + UNLOCK_LINK_TTL_MS
            await tx.unlock_links.upsert(SignInUnlockLink(user.user_id, self.digest.sha256(token), now_ms, expires_ms, False))
            await self._emit(tx, user, client, "unlock_requested", "A link to sign in in another browser was sent", now_ms)
        minutes = UNLOCK_LINK_TTL_MS // MINUTE_MS
        values = {"name": user.name, "email": user.email, "link": f"{self.link_url}{token}", "minutes": minutes}
        self.mails.enqueue(user.email, *MAIL.write(self.translator, language, **values))

    async def open_link(self, token: str, *, client: ClientInfo) -> str:
        """The device's tokens, with one of the user. Raises ValidationFailed for a link that is wrong, expired or used."""
        now_ms = self.clock.now_ms()
        async with self.uow.write(caller=None) as tx:
            link = await tx.unlock_links.find_by_token(self.digest.sha256(token))
            link = None if link is None else await tx.unlock_links.get_for_update(link.user_id)
            user = None if link is None else await tx.users.get(link.user_id)
            is_this = link is not None and link.token_hash == self.digest.sha256(token)
            if link is None or user is None or not is_this or link.used or now_ms >= link.expires_ms:
                raise ValidationFailed.for_field("token", "is wrong, expired or used. Request a new link.", code="LINK_INVALID")
            await tx.unlock_links.upsert(replace(link, used=True))
            await self._emit(tx, user, client, "unlock_used", "A browser was unlocked by a link from a mail", now_ms)
        return self.devices.add_token(client.device_tokens, user.user_id)

    async def _emit(self, tx: SignInTx, user: User, client: ClientInfo, kind: EventKind, description: str, now_ms: int) -> None:
        for membership in await tx.memberships.list_by_user(user.user_id):
            caller = membership.to_session(client.address)
            tx.emit(event_of(caller, kind, f"{user.name}: {description}", now_ms))


def _is_cooling_down(link: SignInUnlockLink, now_ms: int) -> bool:
    is_recent = now_ms < link.issued_ms + UNLOCK_COOLDOWN_MS and not is_of_earlier_clock(link.issued_ms, now_ms)
    return is_recent and not link.used
