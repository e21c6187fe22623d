"""A member's own settings and channels, and the key pair of this installation for Web Push. Nobody else sees or changes the
settings of a member, and nobody sees a destination again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import field, replace

from domain.accounts.ports import Translator
from domain.kernel.caller import Role, SessionCaller
from domain.kernel.clock import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, Clock
from domain.kernel.dataclasses import service
from domain.kernel.domain_event import event_of
from domain.kernel.errors import Conflict, NotFound
from domain.kernel.ids import ChannelId, IdAndSecretGenerator, IdPrefix
from domain.kernel.ports import Vault
from domain.kernel.unit_of_work import UnitOfWork
from domain.notifications.destinations import (
    SealedDestination,
    UrlCheck,
    check_destination,
    describe,
    kind_of,
    open_destination,
    seal_destination,
)
from domain.notifications.model import (
    MAIL_FOOTER,
    SEND_TIMEOUT_S,
    ChannelErrorCode,
    ChannelSendResult,
    NotificationChannel,
    NotificationChannelKind,
    NotificationMessage,
    NotificationSendOutcome,
    NotificationSettings,
    without_cause,
)
from domain.notifications.ports import NotificationSender, NotificationsTx, PushKeyCodec
from domain.sign_in.policy import AttemptLimit
from domain.sign_in.presence import require_fresh_proof

MAX_CHANNELS = 10
"""Of one member: a few browsers, a phone, mail."""
TEST_LIMIT = AttemptLimit(20, HOUR_MS)
"""Test messages of one member: the service is no tool to bother the owner of a topic or a chat."""
ACCOUNT_TEST_LIMIT = AttemptLimit(60, HOUR_MS)
"""Of all members of an account together: many members are no faster scanner."""
ERROR_TIME_STEP_MS = 5 * MINUTE_MS
"""The time of an error tells how long the attempt took; who may not see the cause gets it rounded down."""
MAIL_NAME = "Mail"
PUSH_KEY_NAME = "vapid"
"""The row, and what the seal is bound to."""


@service
class NotificationSettingsService:
    """`rejection_reason`: why nothing can be sent to a URL, or None; `public_rejection_reason`: the same
    where nothing in the operator's own networks is permitted. `pause`: for so many seconds."""

    uow: UnitOfWork[NotificationsTx]
    clock: Clock
    ids: IdAndSecretGenerator
    vault: Vault
    sender: NotificationSender
    push_keys: PushKeyCodec
    rejection_reason: UrlCheck
    public_rejection_reason: UrlCheck
    public_url: str
    translator: Translator
    pause: Callable[[float], Awaitable[None]]

    async def get_settings(self, caller: SessionCaller) -> tuple[NotificationSettings, bool]:
        """With whether the member is told by mail."""
        async with self.uow.read() as tx:
            found = await tx.notifications.get_settings(caller.membership_id)
            channels = await tx.notification_channels.list_by_member(caller.membership_id)
        settings = found or NotificationSettings(caller.membership_id, caller.account_id)
        return settings, _find_mail(channels) is not None

    async def put_settings(
        self, caller: SessionCaller, wanted: NotificationSettings, *, mail: bool | None
    ) -> tuple[NotificationSettings, bool]:
        """The settings of the caller, and whether mail is a channel: as before where `mail` is None. The ids in `wanted` are
        ignored. Raises Conflict `CHANNEL_LIMIT`; PermissionDenied
        `STEP_UP_REQUIRED` where mail becomes a channel, or is one no longer."""
        settings = replace(wanted, membership_id=caller.membership_id, account_id=caller.account_id)
        async with self.uow.write(caller, Role.VIEWER, locks_account=True) as tx:
            await tx.notifications.upsert_settings(settings)
            channels = await tx.notification_channels.list_by_member(caller.membership_id)
            present = _find_mail(channels)
            if mail is None:
                mail = present is not None
            elif mail and present is None:
                await self._add(tx, caller, channels, NotificationChannelKind.MAIL, MAIL_NAME, None)
            elif not mail and present is not None:
                await require_fresh_proof(tx, caller, self.clock.now_ms())
                await self._delete(tx, caller, present)
        return settings, mail

    async def list_channels(self, caller: SessionCaller) -> Sequence[NotificationChannel]:
        """Oldest first."""
        async with self.uow.read() as tx:
            channels = await tx.notification_channels.list_by_member(caller.membership_id)
        return [_as_seen_by(caller, each) for each in channels]

    async def get_channel(self, caller: SessionCaller, channel_id: ChannelId) -> NotificationChannel:
        """Raises NotFound, for a channel of another member too."""
        async with self.uow.read() as tx:
            return _as_seen_by(caller, await _get_own(tx, caller, channel_id))

    async def add_channel(self, caller: SessionCaller, name: str, destination: SealedDestination) -> NotificationChannel:
        """Raises ValidationFailed for a URL that nothing can be sent to, PermissionDenied `STEP_UP_REQUIRED`, Conflict
        `CHANNEL_LIMIT`."""
        # What is in the operator's own networks is for Admins, as with webhooks.
        push_check = self.rejection_reason if caller.role.is_at_least(Role.ADMIN) else self.public_rejection_reason
        check_destination(destination, self.rejection_reason, push_check, self.push_keys.are_browser_keys)
        async with self.uow.write(caller, Role.VIEWER, locks_account=True) as tx:
            channels = await tx.notification_channels.list_by_member(caller.membership_id)
            return await self._add(tx, caller, channels, kind_of(destination), name, destination)

    async def delete_channel(self, caller: SessionCaller, channel_id: ChannelId) -> None:
        """Raises NotFound, for a channel of another member too; PermissionDenied `STEP_UP_REQUIRED`: it silences its owner."""
        async with self.uow.write(caller, Role.VIEWER) as tx:
            channel = await _get_own(tx, caller, channel_id)
            await require_fresh_proof(tx, caller, self.clock.now_ms())
            await self._delete(tx, caller, channel)

    async def confirm_channel(self, caller: SessionCaller, channel_id: ChannelId) -> NotificationChannel:
        """Of a suspended channel: its owner says that it is theirs. Raises NotFound, PermissionDenied `STEP_UP_REQUIRED`."""
        now_ms = self.clock.now_ms()
        async with self.uow.write(caller, Role.VIEWER, locks_account=True) as tx:
            channel = await _get_own(tx, caller, channel_id)
            await require_fresh_proof(tx, caller, now_ms)
            if channel.suspended_ms is not None:
                await tx.notification_channels.confirm(channel_id)
                text = f"The channel {channel.name} was confirmed"
                tx.emit(event_of(caller, "channel_confirmed", text, now_ms, channelId=channel_id))
        return _as_seen_by(caller, replace(channel, suspended_ms=None))

    async def send_test(self, caller: SessionCaller, channel_id: ChannelId) -> ChannelSendResult:
        """Now, also in the quiet hours. A destination that is gone is removed. Below Admin, a failure has no cause and takes as
        long as a silent port does (`without_cause`). Raises NotFound, RateLimited, Conflict `CHANNEL_SUSPENDED`."""
        now_ms, began_ms = self.clock.now_ms(), self.clock.monotonic_ms()
        async with self.uow.write(caller, Role.VIEWER, locks_account=True) as tx:
            channel = await _get_own(tx, caller, channel_id)
            if channel.suspended_ms is not None:
                raise Conflict(
                    "Nothing is sent to this channel since the password was changed or all sessions were signed out. Confirm it "
                    "first, or delete it.",
                    code="CHANNEL_SUSPENDED",
                )
            for limit, of in ((ACCOUNT_TEST_LIMIT, caller.account_id), (TEST_LIMIT, caller.membership_id)):
                subject = f"notification-tests:{of}"
                sent = await tx.login_failures.get_for_update(subject)
                limit.check(sent, now_ms, "test notifications")
                await tx.login_failures.upsert(limit.count(sent, subject, now_ms))
            user = await tx.users.get(caller.user_id)
            settings = await tx.notifications.get_settings(caller.membership_id)
        destination = open_destination(self.vault, channel, "" if user is None else user.email)
        [result] = await self.sender.send_many(
            [(destination, self._test_message(channel, "en" if settings is None else settings.language))]
        )
        is_hidden = not caller.role.is_at_least(Role.ADMIN) and result.outcome is not NotificationSendOutcome.SENT
        if is_hidden:
            await self.pause(max(0.0, SEND_TIMEOUT_S - (self.clock.monotonic_ms() - began_ms) / SECOND_MS))
        async with self.uow.write(caller=None) as tx:
            await record_result(tx, channel, result, self.clock.now_ms())
        if not is_hidden:
            return result
        code, error = without_cause(channel.kind, result.code, result.error)
        return replace(result, code=code, error=error or "")

    def _test_message(self, channel: NotificationChannel, language: str) -> NotificationMessage:
        texts = ("Latchboard: a test", f"Notifications of Latchboard arrive here: {channel.name}.", MAIL_FOOTER)
        title, text, footer = (self.translator.translate(each, language) for each in texts)
        link, tag = f"{self.public_url}/#/account", f"test:{channel.channel_id}"
        return NotificationMessage(title, text, link, tag, DAY_MS // SECOND_MS, mail_footer=footer)

    async def _add(
        self,
        tx: NotificationsTx,
        caller: SessionCaller,
        existing: Sequence[NotificationChannel],
        kind: NotificationChannelKind,
        name: str,
        destination: SealedDestination | None,
    ) -> NotificationChannel:
        now_ms = self.clock.now_ms()
        await require_fresh_proof(tx, caller, now_ms)
        if len(existing) >= MAX_CHANNELS:
            raise Conflict(f"You have {MAX_CHANNELS} channels. Delete one that is not needed any more.", code="CHANNEL_LIMIT")
        channel_id = ChannelId(self.ids.new_id(IdPrefix.CHANNEL))
        made = NotificationChannel(
            channel_id=channel_id,
            membership_id=caller.membership_id,
            account_id=caller.account_id,
            kind=kind,
            name=name,
            target="" if destination is None else describe(destination),
            sealed=None if destination is None else seal_destination(self.vault, channel_id, destination),
            created_ms=now_ms,
        )
        await tx.notification_channels.add(made)
        text = f"The channel {name} ({kind}) was added"
        tx.emit(event_of(caller, "channel_added", text, now_ms, channelId=channel_id))
        return made

    async def _delete(self, tx: NotificationsTx, caller: SessionCaller, channel: NotificationChannel) -> None:
        await tx.notification_channels.delete(channel.channel_id)
        text = f"The channel {channel.name} ({channel.kind}) was deleted"
        tx.emit(event_of(caller, "channel_deleted", text, self.clock.now_ms(), channelId=channel.channel_id))


async def record_result(tx: NotificationsTx, channel: NotificationChannel, result: ChannelSendResult, now_ms: int) -> None:
    """Its owner sees it beside the channel. A destination that is gone is removed."""
    if result.outcome is NotificationSendOutcome.SENT:
        await tx.notification_channels.record_sent(channel.channel_id, now_ms)
    elif result.outcome is NotificationSendOutcome.GONE:
        await tx.notification_channels.delete(channel.channel_id)
    else:
        code = result.code or ChannelErrorCode.INTERNAL_ERROR
        await tx.notification_channels.record_error(channel.channel_id, code, result.error, now_ms)


def _as_seen_by(caller: SessionCaller, channel: NotificationChannel) -> NotificationChannel:
    if caller.role.is_at_least(Role.ADMIN) or channel.last_error_ms is None:
        return channel
    code, error = without_cause(channel.kind, channel.last_error_code, channel.last_error)
    rounded_ms = channel.last_error_ms - channel.last_error_ms % ERROR_TIME_STEP_MS
    return replace(channel, last_error_code=code, last_error=error, last_error_ms=rounded_ms)


def _find_mail(channels: Sequence[NotificationChannel]) -> NotificationChannel | None:
    return next((each for each in channels if each.kind is NotificationChannelKind.MAIL), None)


async def _get_own(tx: NotificationsTx, caller: SessionCaller, channel_id: ChannelId) -> NotificationChannel:
    channel = await tx.notification_channels.get(channel_id)
    if channel is None or channel.membership_id != caller.membership_id:
        raise NotFound("You have no such channel. List yours with GET /api/v1/auth/notifications/channels.")
    return channel


@service
class PushKeyService:
    """The key pair that identifies this installation to push services (VAPID, RFC 8292): made at the first start, sealed, kept.
    Browsers bind a subscription to the public key, so another key would end all subscriptions."""

    uow: UnitOfWork[NotificationsTx]
    vault: Vault
    codec: PushKeyCodec
    _private_key: str = field(default="", init=False)

    async def get_private_key(self) -> str:
        """Made if there is none yet; of several instances that make one at the same time, one wins. Raises SecretUnreadable."""
        if not self._private_key:
            async with self.uow.read() as tx:
                sealed = await tx.service_secrets.get(PUSH_KEY_NAME)
            self._private_key = self.vault.open(sealed if sealed is not None else await self._create(), PUSH_KEY_NAME)
        return self._private_key

    async def get_public_key(self) -> str:
        """Raises SecretUnreadable."""
        return self.codec.public_key(await self.get_private_key())

    async def _create(self) -> bytes:
        made = self.vault.seal(self.codec.generate(), PUSH_KEY_NAME)
        async with self.uow.write(caller=None) as tx:
            await tx.service_secrets.add_if_absent(PUSH_KEY_NAME, made)
            stored = await tx.service_secrets.get(PUSH_KEY_NAME)
        return made if stored is None else stored
