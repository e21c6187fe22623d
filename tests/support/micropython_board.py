"""Stands for a board's `main.py` in MicroPython's Unix port: a pin that is written is a line on standard output; a line on standard
input, `0 down` or `0 up`, presses or releases the button at a pin.

Arguments: the seconds between two messages of telemetry, and the authority's certificate (DER) for TLS. BOARD_RELAYS and
BOARD_BUTTONS are those of `main.py`. With BOARD_CODE it claims its credentials at BOARD_SERVICE, and its flash is the directory
BOARD_FLASH."""

import os
import select
import ssl
import sys

from latchboard_relay import Button, Relay, RelayDevice

levels = {}  # of the pins of the relays; one that is set to the level it has makes no line
pressed = set()  # the pins of the buttons that are down
keyboard = select.poll()
keyboard.register(sys.stdin, select.POLLIN)


def read_keyboard():
    while keyboard.poll(0):
        line = sys.stdin.readline().split()
        if len(line) != 2:  # the end of the input
            keyboard.unregister(sys.stdin)
            return
        (pressed.add if line[1] == "down" else pressed.discard)(line[0])


def make_relay(pin, name):
    def switch(on):
        if levels.get(pin) != on:
            print("relay", pin, "ON" if on else "OFF")
        levels[pin] = on

    return Relay(name, switch)


def make_button(pin, name, toggles):
    def is_pressed():
        read_keyboard()
        return str(pin) in pressed

    return Button(name, is_pressed, toggles)


def read_metrics():
    return {"rssi": -50, "uptime": 1}


def tls_context(file):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.verify_mode = ssl.CERT_REQUIRED
    with open(file, "rb") as certificate:
        context.load_verify_locations(cadata=certificate.read())
    return context


def get_config():
    if os.getenv("BOARD_CODE") is None:
        import latchboard_config

        return latchboard_config
    import latchboard_claim

    os.chdir(os.getenv("BOARD_FLASH"))
    return latchboard_claim.get_config(os.getenv("BOARD_SERVICE"), os.getenv("BOARD_CODE"), os.getenv("BOARD_MAC"), tls)


tls = tls_context(sys.argv[2]) if len(sys.argv) > 2 else None
relays = [make_relay(26, "Relay")]
relays += [make_relay(*each) for each in eval(os.getenv("BOARD_RELAYS") or "[]")]
buttons = [make_button(*each) for each in eval(os.getenv("BOARD_BUTTONS") or "[]")]
RelayDevice(get_config(), relays, read_metrics, tls, int(sys.argv[1]), buttons).run()
