"""Runs at each start of the board: Wi-Fi, the relay's pin, and the device. Copy it beside latchboard_config.py, which is for one
device; or, for many boards with one firmware, beside latchboard_claim.py, with a provisioning code here."""

import time

import machine
import network
from latchboard_relay import RelayDevice

WIFI_NAME = "your network"
WIFI_PASSWORD = "your password"  # noqa: S105 - a placeholder
RELAY_PIN = 26
CA_FILE = None  # "ca.der": the service's authority (DER); then MQTT is encrypted
PROVISIONING_CODE = None  # "lbp_...": the board trades it for credentials of its own at its first start
SERVICE_URL = "http://192.168.1.10:8080"  # for the code; https needs CA_FILE. The answer is a password

relay = machine.Pin(RELAY_PIN, machine.Pin.OUT, value=0)
wifi = network.WLAN(network.STA_IF)


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


wifi.active(True)
wifi.connect(WIFI_NAME, WIFI_PASSWORD)  # the board connects again by itself
RelayDevice(get_config(), relay.value, read_metrics, tls_context()).run()
