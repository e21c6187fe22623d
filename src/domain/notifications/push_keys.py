"""The key pair that identifies this installation to push services (VAPID, RFC 8292): made at the first start, sealed, kept.

Browsers bind a subscription to the public key, so another key would end all subscriptions.
"""

from __future__ import annotations

from domain.kernel.ports import Vault
from domain.kernel.unit_of_work import UnitOfWork
from domain.notifications.ports import HasServiceSecrets, PushKeyCodec

NAME = "vapid"
"""The row, and what the seal is bound to."""


class PushKeyService:
    def __init__(self, *, uow: UnitOfWork[HasServiceSecrets], vault: Vault, codec: PushKeyCodec) -> None:
        self._uow = uow
        self._vault = vault
        self._codec = codec
        self._private_key = ""

    async def get_private_key(self) -> str:
        """Made if there is none yet; of several instances that make one at the same time, one wins. Raises SecretUnreadable."""
        if not self._private_key:
            async with self._uow.read() as tx:
                sealed = await tx.service_secrets.get(NAME)
            self._private_key = self._vault.open(sealed if sealed is not None else await self._create(), NAME)
        return self._private_key

    async def get_public_key(self) -> str:
        """Raises SecretUnreadable."""
        return self._codec.public_key(await self.get_private_key())

    async def _create(self) -> bytes:
        made = self._vault.seal(self._codec.generate(), NAME)
        async with self._uow.write(caller=None) as tx:
            await tx.service_secrets.add_if_absent(NAME, made)
            stored = await tx.service_secrets.get(NAME)
        return made if stored is None else stored
