"""Channels: numbers for what the firmware names, states, and what is shown of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.devices.channels import (
    MAX_CHANNEL,
    Channel,
    ChannelKind,
    ChannelState,
    DeclaredChannel,
    find_channel,
    number_channels,
    on_channel,
    says_something_new,
)

KINDS = st.sampled_from(list(ChannelKind))
COMPONENTS = st.sampled_from([f"light/{name}" for name in "abcdefghij"])
NAMED = st.lists(st.builds(DeclaredChannel, st.none(), KINDS, st.none(), COMPONENTS), unique_by=lambda one: one.component)


@given(NAMED, NAMED)
def test_a_component_keeps_its_number_and_never_gets_that_of_another(
    first: list[DeclaredChannel], second: list[DeclaredChannel]
) -> None:
    numbered, _ = number_channels((), first)
    known = [Channel(number, each.kind, component=each.component, is_declared=True) for number, each in numbered]
    again, left_out = number_channels(known, second)
    before = {each.component: each.channel for each in known}
    assert left_out == 0
    assert 1 not in dict(again), "channel 1 is the relay"
    for number, each in again:
        assert before.get(each.component, number) == number
        assert each.component in before or number not in before.values()
    assert len(dict(again)) == len(second)


def test_a_number_that_the_firmware_gives_wins_over_one_that_was_given_to_a_component() -> None:
    """A Shelly that was a cover with an input becomes two switches."""
    known = [
        Channel(1, ChannelKind.COVER, component="cover:0", is_declared=True),
        Channel(2, ChannelKind.INPUT, component="input:0", is_declared=True),
    ]
    inputs = [DeclaredChannel(None, ChannelKind.INPUT, component="input:0")]
    switches = [DeclaredChannel(number, ChannelKind.RELAY, component=f"switch:{number - 1}") for number in (1, 2)]
    for declared in (switches + inputs, inputs + switches):
        numbered, left_out = number_channels(known, declared)
        assert [(number, each.component) for number, each in numbered] == [(1, "switch:0"), (2, "switch:1"), (3, "input:0")]
        assert left_out == 0


def test_more_channels_than_there_are_numbers_are_left_out() -> None:
    many = [DeclaredChannel(None, ChannelKind.RELAY, component=f"switch/{number}") for number in range(MAX_CHANNEL + 3)]
    numbered, left_out = number_channels((), many)
    assert ([number for number, _ in numbered], left_out) == (list(range(2, MAX_CHANNEL + 1)), 4)
    assert number_channels((), [DeclaredChannel(65, ChannelKind.RELAY), DeclaredChannel(0, ChannelKind.RELAY)]) == ([], 2)


def test_a_declaration_that_repeats_what_is_known_changes_nothing() -> None:
    known = [Channel(2, ChannelKind.LEVEL, firmware_name="Lamp", component="light:0", is_declared=True)]
    same = [(2, DeclaredChannel(2, ChannelKind.LEVEL, "Lamp", "light:0"))]
    assert not says_something_new(known, same, is_complete=True)
    assert not says_something_new(known, [(2, DeclaredChannel(2, ChannelKind.LEVEL))], is_complete=True)
    for other in (
        [(2, DeclaredChannel(2, ChannelKind.COVER, "Lamp", "light:0"))],
        [(2, DeclaredChannel(2, ChannelKind.LEVEL, "Bulb", "light:0"))],
        [(2, DeclaredChannel(2, ChannelKind.LEVEL, "Lamp", "light:1"))],
        [*same, (3, DeclaredChannel(3, ChannelKind.RELAY))],
        [],
    ):
        assert says_something_new(known, other, is_complete=True), other
    assert not says_something_new(known, [], is_complete=False)


def test_the_relay_is_always_there_and_others_only_if_they_were_named() -> None:
    known = [Channel(3, ChannelKind.RELAY, component="switch/pump")]
    assert [find_channel(known, each) for each in (1, 2, 3, "switch/pump", "switch/other")] == [1, None, 3, 3, None]


@pytest.mark.parametrize(
    ("kind", "state", "shown"),
    [
        (ChannelKind.RELAY, ChannelState(True), "ON"),
        (ChannelKind.RELAY, ChannelState(), None),
        (ChannelKind.LEVEL, ChannelState(False, 40), {"power": "OFF", "level": 40}),
        (ChannelKind.LEVEL, ChannelState(), None),
        (ChannelKind.COVER, ChannelState(level=0), {"position": 0, "moving": None}),
        (ChannelKind.COVER, ChannelState(details={"moving": "OPENING"}), {"position": None, "moving": "OPENING"}),
        (ChannelKind.CLIMATE, ChannelState(details={"targetCelsius": 21.5}), {"targetCelsius": 21.5, "mode": None}),
        (ChannelKind.INPUT, ChannelState(details={"action": "LONG"}), "LONG"),
    ],
)
def test_a_state_is_shown_by_kind_and_what_is_unknown_is_null(kind: ChannelKind, state: ChannelState, shown: object) -> None:
    assert Channel(2, kind, state=state).shown_state == shown


def test_a_report_changes_only_what_it_says() -> None:
    before = ChannelState(True, 40, {"color": "#ff8800"})
    assert before.merged(ChannelState(level=50)) == ChannelState(True, 50, {"color": "#ff8800"})
    assert before.merged(ChannelState(details={"color": None, "kelvin": 2_700})) == ChannelState(True, 40, {"kelvin": 2_700})


def test_the_log_names_the_channel_in_any_language_and_not_that_of_the_relay() -> None:
    assert [on_channel("ON"), on_channel("ON", 1), on_channel("ON", 2), on_channel("OFF", 2, 3)] == [
        "ON",
        "ON",
        "ON #2",
        "OFF #2 #3",
    ]
