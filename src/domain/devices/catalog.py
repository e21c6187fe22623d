"""Boards and applications that are known by name. The lists suggest; any other name is taken as well, as `native`.

A name is compared by its letters and digits only, so that `ESP32-S3`, `esp32 s3` and `ESP32S3` are one board.
"""

from __future__ import annotations

from dataclasses import dataclass

from domain.devices.model import Profile


@dataclass(frozen=True, slots=True)
class Board:
    """`profile`: the firmware it usually runs. `config_format`: the config block its owner most likely wants."""

    board_type: str
    name: str
    profile: Profile
    config_format: str


@dataclass(frozen=True, slots=True)
class App:
    app_type: str
    name: str


BOARDS: tuple[Board, ...] = (
    Board("ESP32", "Espressif ESP32", Profile.NATIVE, "arduino"),
    Board("ESP32-S3", "Espressif ESP32-S3", Profile.NATIVE, "arduino"),
    Board("ESP32-C3", "Espressif ESP32-C3", Profile.NATIVE, "arduino"),
    Board("ESP8266", "Espressif ESP8266", Profile.NATIVE, "arduino"),
    Board("ARDUINO", "Arduino with network", Profile.NATIVE, "arduino"),
    Board("PICO_W", "Raspberry Pi Pico W", Profile.NATIVE, "micropython"),
    Board("MICROPYTHON", "Any board with MicroPython", Profile.NATIVE, "micropython"),
    Board("RASPBERRY_PI", "Raspberry Pi", Profile.NATIVE, "micropython"),
    Board("SONOFF", "Sonoff with Tasmota", Profile.TASMOTA, "tasmota"),
    Board("TASMOTA", "Any board with Tasmota", Profile.TASMOTA, "tasmota"),
    Board("ESPHOME", "Any board with ESPHome", Profile.ESPHOME, "esphome"),
    Board("SHELLY", "Shelly, generation 2 and later", Profile.SHELLY, "shelly"),
    Board("OTHER", "Something else", Profile.NATIVE, "arduino"),
)

APPS: tuple[App, ...] = (
    App("RELAY", "Relay"),
    App("LIGHT", "Light"),
    App("SOCKET", "Socket"),
    App("PUMP", "Pump"),
    App("IRRIGATION", "Irrigation"),
    App("HVAC", "Heating, ventilation, cooling"),
    App("FAN", "Fan"),
    App("MOTOR", "Motor"),
    App("GATE", "Gate or lock"),
    App("ALARM", "Alarm"),
    App("SENSOR", "Sensor"),
    App("OTHER", "Something else"),
)


def _letters(name: str) -> str:
    return "".join(sign for sign in name.lower() if sign.isalnum())


_BY_NAME = {_letters(board.board_type): board for board in BOARDS}
_STOCK = {"tasmota": Profile.TASMOTA, "sonoff": Profile.TASMOTA, "esphome": Profile.ESPHOME, "shelly": Profile.SHELLY}


def profile_for(board_type: str, app_type: str) -> Profile:
    """The profile of a device that names none: a stock firmware found in the board's or application's name, else native."""
    for name in (_letters(board_type), _letters(app_type)):
        for word, profile in _STOCK.items():
            if word in name:
                return profile
    return Profile.NATIVE


def format_for(profile: Profile, board_type: str) -> str:
    """The config block to show when none is asked for."""
    if profile is not Profile.NATIVE:
        return profile.value
    letters = _letters(board_type)
    board = _BY_NAME.get(letters)
    if board is not None and board.profile is Profile.NATIVE:
        return board.config_format
    return "micropython" if "micropython" in letters or "pico" in letters else "arduino"
