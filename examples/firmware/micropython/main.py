"""Runs at each start of the board: Wi-Fi, the pins of relays and buttons, and the device. Copy it beside latchboard_config.py,
which is for one device; or, for many boards with one firmware, beside latchboard_claim.py, with a provisioning code here."""

import time

import machine
import network
from latchboard_relay import Button, Relay, RelayDevice

WIFI_NAME = "your network"
WIFI_PASSWORD = "your password"  # noqa: S105 - a placeholder
RELAY_PIN = 26
RELAY_NAME = "Relay"
MORE_RELAYS = []  # each (pin, name): [(27, "Light")]
# Each (pin, name, number of the relay that it toggles, or 0): [(0, "Button", 1)]. A pressed button connects its pin to ground.
BUTTONS = []
CA_FILE = None  # "ca.der": the service's authority (DER); then MQTT is encrypted
PROVISIONING_CODE = None  # "lbp_...": the board trades it for credentials of its own at its first start
SERVICE_URL = "http://192.168.1.10:8080"  # for the code; https needs CA_FILE. The answer is a password

wifi = network.WLAN(network.STA_IF)


def make_relay(pin, name):
    return Relay(name, machine.Pin(pin, machine.Pin.OUT, value=0).value)


def make_button(number, name, toggles):
    pin = machine.Pin(number, machine.Pin.IN, machine.Pin.PULL_UP)
    return Button(name, lambda: pin.value() == 0, toggles)


def read_metrics():
    return {"rssi": wifi.status("rssi"), "uptime": time.ticks_ms() // 1000}


def tls_context():
    """None without CA_FILE: then everybody on the network can read the password."""
    if CA_FILE is None:
        return None
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.verify_mode = ssl.CERT_REQUIRED
    with open(CA_FILE, "rb") as file:
        context.load_verify_locations(cadata=file.read())
    return context


def get_config():
    if PROVISIONING_CODE is None:
        import latchboard_config

        return latchboard_config
    import binascii

    import latchboard_claim

    hardware_id = binascii.hexlify(wifi.config("mac"), ":").decode()
    return latchboard_claim.get_config(SERVICE_URL, PROVISIONING_CODE, hardware_id, tls_context())


relays = [make_relay(RELAY_PIN, RELAY_NAME)]
relays += [make_relay(*each) for each in MORE_RELAYS]
buttons = [make_button(*each) for each in BUTTONS]
wifi.active(True)
wifi.connect(WIFI_NAME, WIFI_PASSWORD)  # the board connects again by itself
RelayDevice(get_config(), relays, read_metrics, tls_context(), buttons=buttons).run()
