"""Known boards and applications. The lists are suggestions; any other name is accepted too, as `native`.

Names are compared by their letters and digits only, so that `ESP32-S3`, `esp32 s3` and `ESP32S3` are one board.
"""

from __future__ import annotations

from dataclasses import dataclass

from domain.devices.model import FirmwareProfile


@dataclass(frozen=True, slots=True)
class CatalogBoard:
    """`profile`: its usual firmware. `config_format`: the most likely config block for it."""

    board_type: str
    name: str
    description: str
    profile: FirmwareProfile = FirmwareProfile.NATIVE
    config_format: str = "arduino"


@dataclass(frozen=True, slots=True)
class CatalogApplication:
    app_type: str
    name: str
    description: str


_TASMOTA = (FirmwareProfile.TASMOTA, "tasmota")

BOARDS: tuple[CatalogBoard, ...] = (
    CatalogBoard("ESP32", "Espressif ESP32", "Dual-core microcontroller with WiFi and Bluetooth"),
    CatalogBoard("ESP32-S3", "Espressif ESP32-S3", "ESP32 with native USB and more memory"),
    CatalogBoard("ESP32-C3", "Espressif ESP32-C3", "Single-core RISC-V microcontroller with WiFi"),
    CatalogBoard("ESP8266", "Espressif ESP8266", "Small WiFi microcontroller, such as NodeMCU or Wemos D1 mini"),
    CatalogBoard("ARDUINO", "Arduino with network", "Arduino board with WiFi or Ethernet"),
    CatalogBoard("PICO_W", "Raspberry Pi Pico W", "RP2040 microcontroller with WiFi", config_format="micropython"),
    CatalogBoard("MICROPYTHON", "Any board with MicroPython", "Runs the MicroPython example client", config_format="micropython"),
    CatalogBoard("RASPBERRY_PI", "Raspberry Pi", "Linux computer that runs a Python client", config_format="micropython"),
    CatalogBoard("SONOFF", "Sonoff with Tasmota", "Relay or socket flashed with Tasmota", *_TASMOTA),
    CatalogBoard("TASMOTA", "Any board with Tasmota", "Stock Tasmota firmware, configured in its console", *_TASMOTA),
    CatalogBoard(
        "ESPHOME", "Any board with ESPHome", "Stock ESPHome firmware, configured in YAML", FirmwareProfile.ESPHOME, "esphome"
    ),
    CatalogBoard(
        "SHELLY", "Shelly, generation 2 and later", "Stock Shelly firmware, configured over RPC", FirmwareProfile.SHELLY, "shelly"
    ),
    CatalogBoard("OTHER", "Something else", "Any other board or firmware"),
)

APPS: tuple[CatalogApplication, ...] = (
    CatalogApplication("RELAY", "Relay", "Switches any load"),
    CatalogApplication("LIGHT", "Light", "Lamps and light strips"),
    CatalogApplication("SOCKET", "Socket", "Mains socket or plug"),
    CatalogApplication("PUMP", "Pump", "Water or pool pump"),
    CatalogApplication("IRRIGATION", "Irrigation", "Valves that water plants"),
    CatalogApplication("HVAC", "Heating, ventilation, cooling", "Heaters, air conditioners and thermostats"),
    CatalogApplication("FAN", "Fan", "Fans and ventilators"),
    CatalogApplication("MOTOR", "Motor", "Motors, blinds and shutters"),
    CatalogApplication("GATE", "Gate or lock", "Gates, doors and locks"),
    CatalogApplication("ALARM", "Alarm", "Sirens and warning lights"),
    CatalogApplication("SENSOR", "Sensor", "Reports values and switches nothing"),
    CatalogApplication("OTHER", "Something else", "Anything else; say what in `appTypeOther`"),
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
