"""The reader of a fleet's file: the values of YAML 1.2, the line of each part, and errors that say where and why."""

from __future__ import annotations

import pytest

from app.cli import fleet_document
from app.cli.fleet_document import FleetFileError, format_fleet_file, parse_fleet_file

TWO_DEVICES = """\
# Pumps
devices:
  - externalId: pump-1
    commands: [ON, OFF]

  - externalId: pump-2
    schedules:
      - slot: 0
        rrule: >
          FREQ=DAILY
"""


def error_of(text: str) -> str:
    with pytest.raises(FleetFileError) as raised:
        parse_fleet_file("fleet.yaml", text)
    return str(raised.value)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("ON", "ON"),
        ("off", "off"),
        ("yes", "yes"),
        ("true", True),
        ("'true'", "true"),
        ("~", None),
        ("null", None),
        ("", None),
        ("12", 12),
        ("012", 12),
        ("0x1F", 31),
        ("-7", -7),
        ("1.5e3", 1500.0),
        ("2027-06-01T00:00:00Z", "2027-06-01T00:00:00Z"),
        ("12:30", "12:30"),
        ("'12'", "12"),
        ("{}", {}),
        ("[]", []),
    ],
)
def test_values_are_those_of_yaml_1_2(written: str, value: object) -> None:
    found = parse_fleet_file("fleet.yaml", f"field: {written}\n").document["field"]
    assert (type(found), found) == (type(value), value)


def test_json_is_read_too() -> None:
    text = '{"version": 1,\n\t"devices": [{"name": "caf\\u00e9", "on": true}]}'
    assert parse_fleet_file("fleet.json", text).document == {"version": 1, "devices": [{"name": "café", "on": True}]}


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("devices", "fleet.yaml:2: devices"),
        ("devices.0.commands.1", "fleet.yaml:4: devices[0].commands[1]"),
        ("devices.1", "fleet.yaml:6: devices[1]"),
        ("devices.1.schedules.0.rrule", "fleet.yaml:9: devices[1].schedules[0].rrule"),
        ("devices.1.schedules.0.onTs", "fleet.yaml:8: devices[1].schedules[0].onTs"),
        ("groups.0.name", "fleet.yaml: groups[0].name"),
    ],
)
def test_a_place_has_the_line_of_the_part_or_of_what_lacks_it(path: str, place: str) -> None:
    assert parse_fleet_file("fleet.yaml", TWO_DEVICES).place(path) == place


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("", "fleet.yaml: write sections"),
        ("# nothing\n", "fleet.yaml: write sections"),
        ("- a\n", "fleet.yaml: write sections"),
        ("devices: [\n", "fleet.yaml:2: this is not YAML"),
        ("devices:\n\t- a\n", "fleet.yaml:2: this is not YAML"),
        ("a: 1\n---\na: 2\n", "fleet.yaml:2: this is not YAML"),
        ("a: *unknown\n", "fleet.yaml:1: this is not YAML"),
        ("a: \x01\n", "fleet.yaml: this is not YAML"),
        ("a:\n  b: 1\n  b: 2\n", "fleet.yaml:3: 'b' is there twice"),
        ("a: 1\n'a': 2\n", "fleet.yaml:2: 'a' is there twice"),
        ("a:\n  [b, c]: 1\n", "fleet.yaml:2: the name of a field must be text"),
        ("a:\n  {b: c}: 1\n", "fleet.yaml:2: the name of a field must be text"),
        ("a: 1\nb: .inf\n", "fleet.yaml:2: '.inf' cannot be read"),
        ("a: !!int many\n", "fleet.yaml:1: 'many' cannot be read"),
    ],
)
def test_what_is_not_a_fleet_is_refused_with_its_line(text: str, start: str) -> None:
    assert error_of(text).startswith(start)


def test_the_name_of_a_field_is_its_text_as_in_json() -> None:
    text = "a:\n  1: b\n  true: c\n  012: d\n  null: e\n"
    assert parse_fleet_file("fleet.yaml", text).document == {"a": {"1": "b", "true": "c", "012": "d", "null": "e"}}


def test_an_alias_repeats_a_part() -> None:
    text = "a: &slot {slot: 0}\nb:\n  - *slot\n  - *slot\n"
    assert parse_fleet_file("fleet.yaml", text).document["b"] == [{"slot": 0}] * 2


def test_aliases_that_multiply_are_refused() -> None:
    levels = "".join(f"l{number}: &l{number} [{', '.join([f'*l{number - 1}'] * 9)}]\n" for number in range(1, 10))
    assert "values with its aliases" in error_of("l0: &l0 [x, x]\n" + levels)


def test_a_part_that_contains_itself_is_refused() -> None:
    assert error_of("a: 1\nb: &b\n  c: [*b]\n") == "fleet.yaml:2: its parts are more than 100 deep, or one contains itself."


@pytest.mark.parametrize("opening", ["[", "{a: ", "- "])
def test_a_file_that_is_too_deep_is_refused(opening: str) -> None:
    closing = {"[": "]", "{a: ": "}", "- ": ""}[opening]

    def nested(depth: int) -> str:
        return "a:\n  " + opening * depth + "x" + closing * depth

    assert parse_fleet_file("fleet.yaml", nested(90)).document.keys() == {"a"}
    for depth in (110, 2_000):
        assert "are more than 100 deep" in error_of(nested(depth))


def test_a_file_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_document, "MAX_FILE_BYTES", 10)
    assert parse_fleet_file("fleet.yaml", "a: 45678\n").document == {"a": 45678}
    assert error_of("a: é45678\n").startswith("fleet.yaml is larger than 10 bytes")


def test_what_is_written_is_read_again() -> None:
    document = {
        "version": 1,
        "devices": [{"name": "ON", "tags": ["true", "12", "null", "", "1.5", "é: #"], "level": 1.5, "at": "2027-06-01"}],
        "grants": [],
        "description": None,
    }
    assert parse_fleet_file("fleet.yaml", format_fleet_file(document)).document == document


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: " + "[" * 5_000 + "]" * 5_000, 1),
        ("a:\n  " + "{a: " * 5_000 + "}" * 5_000, 2),
        ("".join(f"{' ' * depth}a:\n" for depth in range(1_000)), fleet_document.MAX_DEPTH),
    ],
    ids=["brackets", "braces", "indented"],
)
def test_a_file_that_is_too_deep_is_refused_where_it_becomes_so(text: str, line: int) -> None:
    """The time for it grows with the square of its depth, so reading on would take minutes."""
    assert error_of(text).startswith(f"fleet.yaml:{line}: its parts are more than")


@pytest.mark.parametrize("number", ["1" * 200_000, "0x" + "f" * 200_000, "1." + "1" * 200_000, "1e" + "9" * 200_000])
def test_a_number_that_is_too_long_is_refused_without_repeating_it(number: str) -> None:
    error = error_of(f"a: {number}")
    assert "Write it in quotes if it is text" in error
    assert len(error) < 200
