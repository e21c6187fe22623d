"""Known boards and applications. The lists are suggestions; any other name is accepted too, as `native`.

Names are compared by their letters and digits only, so that `ESP32-S3`, `esp32 s3` and `ESP32S3` are one board.
"""

from __future__ import annotations

from dataclasses import dataclass

from domain.devices.model import FirmwareProfile


@dataclass(frozen=True, slots=True)
class Board:
    """`profile`: its usual firmware. `config_format`: the most likely config block for it."""

    board_type: str
    name: str
    profile: FirmwareProfile
    config_format: str


@dataclass(frozen=True, slots=True)
class AppType:
    app_type: str
    name: str


BOARDS: tuple[Board, ...] = (
    Board("ESP32", "Espressif ESP32", FirmwareProfile.NATIVE, "arduino"),
    Board("ESP32-S3", "Espressif ESP32-S3", FirmwareProfile.NATIVE, "arduino"),
    Board("ESP32-C3", "Espressif ESP32-C3", FirmwareProfile.NATIVE, "arduino"),
    Board("ESP8266", "Espressif ESP8266", FirmwareProfile.NATIVE, "arduino"),
    Board("ARDUINO", "Arduino with network", FirmwareProfile.NATIVE, "arduino"),
    Board("PICO_W", "Raspberry Pi Pico W", FirmwareProfile.NATIVE, "micropython"),
    Board("MICROPYTHON", "Any board with MicroPython", FirmwareProfile.NATIVE, "micropython"),
    Board("RASPBERRY_PI", "Raspberry Pi", FirmwareProfile.NATIVE, "micropython"),
    Board("SONOFF", "Sonoff with Tasmota", FirmwareProfile.TASMOTA, "tasmota"),
    Board("TASMOTA", "Any board with Tasmota", FirmwareProfile.TASMOTA, "tasmota"),
    Board("ESPHOME", "Any board with ESPHome", FirmwareProfile.ESPHOME, "esphome"),
    Board("SHELLY", "Shelly, generation 2 and later", FirmwareProfile.SHELLY, "shelly"),
    Board("OTHER", "Something else", FirmwareProfile.NATIVE, "arduino"),
)

APPS: tuple[AppType, ...] = (
    AppType("RELAY", "Relay"),
    AppType("LIGHT", "Light"),
    AppType("SOCKET", "Socket"),
    AppType("PUMP", "Pump"),
    AppType("IRRIGATION", "Irrigation"),
    AppType("HVAC", "Heating, ventilation, cooling"),
    AppType("FAN", "Fan"),
    AppType("MOTOR", "Motor"),
    AppType("GATE", "Gate or lock"),
    AppType("ALARM", "Alarm"),
    AppType("SENSOR", "Sensor"),
    AppType("OTHER", "Something else"),
)


def _normalized_name(name: str) -> str:
    return "".join(sign for sign in name.lower() if sign.isalnum())


_BOARDS_BY_NAME = {_normalized_name(board.board_type): board for board in BOARDS}
_STOCK_FIRMWARE = {
    "tasmota": FirmwareProfile.TASMOTA,
    "sonoff": FirmwareProfile.TASMOTA,
    "esphome": FirmwareProfile.ESPHOME,
    "shelly": FirmwareProfile.SHELLY,
}


def infer_profile(board_type: str, app_type: str) -> FirmwareProfile:
    """The default profile: the stock firmware named in the board or application type, else native."""
    for name in (_normalized_name(board_type), _normalized_name(app_type)):
        for word, profile in _STOCK_FIRMWARE.items():
            if word in name:
                return profile
    return FirmwareProfile.NATIVE


def default_config_format(profile: FirmwareProfile, board_type: str) -> str:
    """The config block to show by default."""
    if profile is not FirmwareProfile.NATIVE:
        return profile.value
    letters = _normalized_name(board_type)
    board = _BOARDS_BY_NAME.get(letters)
    if board is not None and board.profile is FirmwareProfile.NATIVE:
        return board.config_format
    return "micropython" if "micropython" in letters or "pico" in letters else "arduino"
