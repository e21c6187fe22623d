"""The channels of a device: what of it can be switched, set or pressed.

Channel 1 is the relay of the specification. A device that names no channels has this one relay, and nothing is stored for it but
the relay state. What more a board has comes from the firmware's own word, or from a person who describes it. Firmware that does
not know channels would take a command for its only relay; so a command for another channel is sent to native firmware only if its
last `hello` named the channel.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from domain.kernel.domain_event import Json, JsonObject
from domain.kernel.errors import FieldError, ValidationFailed

RELAY_CHANNEL = 1
MAX_CHANNEL = 64
MAX_LEVEL = 100
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
        details: JsonObject = {k: v for k, v in {**self.details, **report.details}.items() if v is not None}
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


def check_channel_inputs(channels: Iterable[Channel], inputs: Sequence[ChannelInput]) -> None:
    """`channels`: what is known. Raises ValidationFailed for a number that is used twice, and for a kind that is not the
    firmware's."""
    numbers = [each.channel for each in inputs]
    faults = [
        FieldError(f"channels.{index}.channel", f"channel {number} is there twice; give each its own number.")
        for index, number in enumerate(numbers)
        if number in numbers[:index]
    ]
    declared = {each.channel: each.kind for each in channels if each.is_declared}
    faults += [
        FieldError(f"channels.{index}.kind", f"the firmware says that channel {each.channel} is a {declared[each.channel]}.")
        for index, each in enumerate(inputs)
        if declared.get(each.channel, each.kind) is not each.kind
    ]
    if faults:
        raise ValidationFailed("The channels are not valid; see details.", details=faults)


def without_own_names(channels: Iterable[Channel], inputs: Sequence[ChannelInput]) -> Sequence[ChannelInput]:
    """`channels`: what is known. A name that a channel has anyway is not given to it: who reads the channels and sends them back
    with one name changed leaves the others to the firmware."""
    own = {each.channel: replace(each, given_name=None).name for each in channels}
    return [replace(each, name=None) if each.name == own.get(each.channel) else each for each in inputs]


def find_channel(channels: Iterable[Channel], reference: int | str) -> int | None:
    """The number of a channel by its number or component. Number 1 is always there."""
    if isinstance(reference, str):
        return next((each.channel for each in channels if each.component == reference), None)
    return reference if reference == RELAY_CHANNEL or any(each.channel == reference for each in channels) else None


def number_channels(
    channels: Sequence[Channel], declared: Iterable[DeclaredChannel]
) -> tuple[list[tuple[int, DeclaredChannel]], int]:
    """What the firmware names with its numbers, and how many were left out because there are more than `MAX_CHANNEL`."""
    ordered = list(declared)
    fixed = {each.channel for each in ordered if each.channel is not None}
    taken = {RELAY_CHANNEL, *fixed, *(each.channel for each in channels)}
    found: dict[int, DeclaredChannel] = {}
    left_out = 0
    for each in ordered:
        number = each.channel
        if number is None and each.component is not None:
            number = find_channel(channels, each.component)
            if number in fixed:  # the firmware gives it to another one now
                number = None
        if number is None:
            number = next((free for free in range(RELAY_CHANNEL + 1, MAX_CHANNEL + 1) if free not in taken), None)
        if number is None or not 1 <= number <= MAX_CHANNEL:
            left_out += 1
            continue
        taken.add(number)
        found[number] = each
    return sorted(found.items()), left_out


def says_something_new(
    channels: Sequence[Channel], declared: Sequence[tuple[int, DeclaredChannel]], *, is_complete: bool
) -> bool:
    """Whether a declaration changes what is known."""
    known = {each.channel: each for each in channels if each.is_declared}
    if is_complete and known.keys() != {number for number, _ in declared}:
        return True
    return any(
        number not in known
        or known[number].kind is not each.kind
        or each.name not in (None, known[number].firmware_name)
        or each.component not in (None, known[number].component)
        for number, each in declared
    )


def on_channel(text: str, *channels: int) -> str:
    """A command or place with its channels, such as `ON #2`, in any language; the relay, and none for all, go without saying."""
    return text if channels in ((), (RELAY_CHANNEL,)) else f"{text} {' '.join(f'#{number}' for number in channels)}"


def covers_channels(granted: Collection[int], wanted: Collection[int] | None) -> bool:
    """Whether a grant for these channels (empty: all) covers the wanted ones (None: any that the device has)."""
    return not granted or (wanted is not None and set(wanted) <= set(granted))
