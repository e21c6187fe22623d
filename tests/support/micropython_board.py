"""Stands for a board's `main.py` in MicroPython's Unix port: the relay and its sensor are lines on standard output.

Arguments: the seconds between two messages of telemetry, and the authority's certificate (DER) for TLS. With BOARD_CODE it claims
its credentials at BOARD_SERVICE, and its flash is the directory BOARD_FLASH."""

import os
import ssl
import sys

from latchboard_relay import RelayDevice


def switch(on):
    print("relay", "ON" if on else "OFF")


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
RelayDevice(get_config(), switch, read_metrics, tls, int(sys.argv[1])).run()
