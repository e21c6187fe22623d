"""The feed's messages between instances, as JSON. Raises msgspec.MsgspecError for a message of another version."""

from __future__ import annotations

import msgspec

from domain.events.model import Event
from domain.feed.interest import PeerFeedInterestMessage, PeerFeedReadingsMessage

encode = msgspec.json.encode
decode_interest = msgspec.json.Decoder(PeerFeedInterestMessage).decode


def decode_readings(body: bytes) -> PeerFeedReadingsMessage:
    try:
        fields = msgspec.json.decode(body)
        return PeerFeedReadingsMessage(**fields | {"events": [Event(**each) for each in fields["events"]]})
    except (KeyError, TypeError) as error:
        raise msgspec.DecodeError(str(error)) from None
