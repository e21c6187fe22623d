"""Checks a passkey in two steps: the signature before the transaction, because it costs milliseconds; then, in the transaction
that acts, that the passkey still exists, that its challenge is used for the first time, and that its use count grew.
"""

from __future__ import annotations

from domain.kernel.clock import Clock
from domain.kernel.domain_event import JsonObject
from domain.kernel.unit_of_work import UnitOfWork
from domain.sign_in.passkeys.challenges import PasskeyChallengeCodec, passkey_refused_error
from domain.sign_in.passkeys.model import Passkey, VerifiedPasskeyAssertion
from domain.sign_in.passkeys.ports import HasPasskeys, PasskeyCodec, PasskeyResponseError


class PasskeyAssertionService:
    def __init__(
        self, *, uow: UnitOfWork[HasPasskeys], clock: Clock, codec: PasskeyCodec, challenges: PasskeyChallengeCodec
    ) -> None:
        self._uow = uow
        self._clock = clock
        self._codec = codec
        self._challenges = challenges

    async def verify(self, response: JsonObject, purpose: str) -> VerifiedPasskeyAssertion:
        """Raises ValidationFailed `PASSKEY_REFUSED`, with the same text for an unknown passkey and a wrong signature."""
        refused = passkey_refused_error("it is not registered here, or its signature is wrong. Use another way to sign in.")
        try:
            claimed = self._codec.read_assertion(response)
        except PasskeyResponseError:
            raise refused from None
        challenge = self._challenges.check(claimed.challenge, purpose, self._clock.now_ms())
        async with self._uow.read() as tx:
            passkey = await tx.passkeys.find_by_credential(claimed.credential_id)
        if passkey is None or claimed.user_handle not in (None, passkey.user_id):
            raise refused
        try:
            sign_count = await self._codec.verify_assertion(response, claimed.challenge, passkey)
        except PasskeyResponseError:
            raise refused from None
        return VerifiedPasskeyAssertion(passkey.passkey_id, passkey.user_id, sign_count, challenge)

    async def use(self, tx: HasPasskeys, verified: VerifiedPasskeyAssertion, now_ms: int) -> Passkey | None:
        """None if it does not count. The challenge is used up in any case, so commit also after None."""
        passkey = await tx.passkeys.get_for_update(verified.passkey_id)
        is_first_use = await tx.passkeys.use_challenge(verified.challenge)
        if passkey is None or not is_first_use or not passkey.accepts_sign_count(verified.sign_count):
            return None
        await tx.passkeys.record_use(passkey.passkey_id, verified.sign_count, now_ms)
        return passkey
