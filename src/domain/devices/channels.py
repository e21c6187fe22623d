"""The channels of a device: what of it can be switched, set or pressed.

Channel 1 is the relay of the specification. A device that names no channels has this one relay, and nothing is stored for it but
the relay state. What more a board has comes from the firmware's own word, or from a person who describes it. Firmware that does
not know channels would take a command for its only relay; so a command for another channel is sent to native firmware only if its
last `hello` named the channel.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from domain.kernel.domain_event import Json, JsonObject
from domain.kernel.errors import FieldError, ValidationFailed

RELAY_CHANNEL = 1
MAX_CHANNEL = 64
MAX_CHANNEL_NAME = 64


class ChannelKind(StrEnum):
    RELAY = "RELAY"
    LEVEL = "LEVEL"
    """A relay with a level of 0 to 100: a dimmer, a fan."""
    COLOR = "COLOR"
    COVER = "COVER"
    """A shutter or gate with a position: 0 is closed, 100 open."""
    CLIMATE = "CLIMATE"
    INPUT = "INPUT"
    """A button or contact: it reports, and takes no commands."""

    @property
    def is_switched(self) -> bool:
        """Whether it is on or off."""
        return self in (ChannelKind.RELAY, ChannelKind.LEVEL, ChannelKind.COLOR)


class InputAction(StrEnum):
    SINGLE = "SINGLE"
    DOUBLE = "DOUBLE"
    TRIPLE = "TRIPLE"
    LONG = "LONG"
    ON = "ON"
    OFF = "OFF"

    @property
    def is_contact(self) -> bool:
        """A state that lasts, unlike a press."""
        return self in (InputAction.ON, InputAction.OFF)


@dataclass(frozen=True, slots=True)
class DeclaredChannel:
    """A channel as the firmware names it. `component`: what the firmware calls it in its topics, such as `cover:0`. `channel`
    None: the firmware numbers it not; it keeps the number that its component has, or gets the next free one from 2 on."""

    channel: int | None
    kind: ChannelKind
    name: str | None = None
    component: str | None = None


@dataclass(frozen=True, slots=True)
class ChannelState:
    """What a channel reports; None: not known. `level`: 0 to 100, also the position of a COVER. `details`: `color` (`#rrggbb`),
    `kelvin`, `moving` (`OPENING`, `CLOSING`), `targetCelsius`, `mode`, `action`, each only where the kind has it."""

    on: bool | None = None
    level: int | None = None
    details: JsonObject = field(default_factory=dict)

    def merged(self, report: ChannelState) -> ChannelState:
        """What is known after a report. A detail that is None is known no more."""
        details = {name: value for name, value in {**self.details, **report.details}.items() if value is not None}
        return ChannelState(
            self.on if report.on is None else report.on, self.level if report.level is None else report.level, details
        )


UNKNOWN_STATE = ChannelState()


@dataclass(frozen=True, slots=True)
class Channel:
    """`given_name`: by a person; it hides the firmware's. `is_declared`: the firmware's last word named it. `reported_ms`: when
    the device reported this state, Unix ms."""

    channel: int
    kind: ChannelKind
    given_name: str | None = None
    firmware_name: str | None = None
    component: str | None = None
    is_declared: bool = False
    state: ChannelState = UNKNOWN_STATE
    reported_ms: int | None = None

    @property
    def name(self) -> str:
        return self.given_name or self.firmware_name or f"{self.kind.value.capitalize()} {self.channel}"

    @property
    def shown_state(self) -> Json:
        """`ON` or `OFF` of a RELAY, the last action of an INPUT, else an object; null until it is reported."""
        on = None if self.state.on is None else "ON" if self.state.on else "OFF"
        level, details = self.state.level, self.state.details
        match self.kind:
            case ChannelKind.RELAY:
                return on
            case ChannelKind.INPUT:
                return details.get("action")
            case ChannelKind.COVER:
                shown = {"position": level, "moving": details.get("moving")}
            case ChannelKind.CLIMATE:
                shown = {"targetCelsius": details.get("targetCelsius"), "mode": details.get("mode")}
            case ChannelKind.LEVEL:
                shown = {"power": on, "level": level}
            case ChannelKind.COLOR:
                shown = {"power": on, "level": level, "color": details.get("color"), "kelvin": details.get("kelvin")}
        return None if all(value is None for value in shown.values()) else shown


@dataclass(frozen=True, slots=True)
class ChannelInput:
    """A channel as a person describes it."""

    channel: int
    kind: ChannelKind
    name: str | None = None


def check_channel_inputs(inputs: Sequence[ChannelInput]) -> None:
    """Raises ValidationFailed for a number that is used twice."""
    numbers = [each.channel for each in inputs]
    faults = [
        FieldError(f"channels.{index}.channel", f"channel {number} is there twice; give each its own number.")
        for index, number in enumerate(numbers)
        if number in numbers[:index]
    ]
    if faults:
        raise ValidationFailed("The channels are not valid; see details.", details=faults)


def apply_declaration(channels: Iterable[Channel], declared: Iterable[DeclaredChannel]) -> tuple[Channel, ...]:
    """The channels after the firmware has named its own. One that it does not name any more stays with its name, for the slots,
    rules and grants that refer to it, but it is not declared; a kind that changes forgets the state."""
    known = {each.channel: replace(each, is_declared=False) for each in channels}
    for each in declared:
        before = known.get(each.channel, Channel(each.channel, each.kind))
        after = replace(before, kind=each.kind, firmware_name=each.name or before.firmware_name, is_declared=True)
        known[each.channel] = after if before.kind is each.kind else replace(after, state=UNKNOWN_STATE, reported_ms=None)
    return tuple(known[number] for number in sorted(known))


def apply_inputs(channels: Iterable[Channel], inputs: Iterable[ChannelInput]) -> tuple[Channel, ...]:
    """The channels after a person has described them: all that the firmware names stay, others only if they are listed."""
    before = {each.channel: each for each in channels}
    given = {each.channel: each for each in inputs}
    kept = {number: each for number, each in before.items() if each.is_declared or number in given}
    for number, each in given.items():
        known = kept.get(number, Channel(number, each.kind))
        kind = known.kind if known.is_declared else each.kind
        state = (known.state, known.reported_ms) if kind is known.kind else (UNKNOWN_STATE, None)
        kept[number] = replace(known, kind=kind, given_name=each.name, state=state[0], reported_ms=state[1])
    return tuple(kept[number] for number in sorted(kept))


def channel_suffix(channel: int) -> str:
    """For a sentence or a name: nothing for the relay."""
    return "" if channel == RELAY_CHANNEL else f" on channel {channel}"


def covers_channels(granted: Collection[int], wanted: Collection[int] | None) -> bool:
    """Whether a grant for these channels (empty: all) covers the wanted ones (None: any that the device has)."""
    return not granted or (wanted is not None and set(wanted) <= set(granted))


ChannelStates = Mapping[int, ChannelState]
