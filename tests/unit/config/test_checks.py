"""The default host in device credentials is an address that a device can connect to."""

from __future__ import annotations

import ipaddress
import socket

import pytest

from app.config import checks
from app.config.checks import reachable_address
from app.config.settings import load_settings


@pytest.mark.parametrize("listening", ["127.0.0.1", "::1", "10.0.0.2", "fd00::2", "mqtt.example.com"])
def test_a_server_on_one_address_is_reached_at_this_address(listening: str) -> None:
    assert reachable_address(listening) == listening


@pytest.mark.parametrize("listening", ["0.0.0.0", "::", "0:0:0:0:0:0:0:0", ""])
def test_a_server_on_all_addresses_is_reached_at_an_address_of_this_machine(listening: str) -> None:
    address = ipaddress.ip_address(reachable_address(listening))
    assert not address.is_unspecified
    with socket.socket(socket.AF_INET if address.version == 4 else socket.AF_INET6) as probe:
        probe.bind((str(address), 0))  # fails for an address of another machine


@pytest.mark.parametrize(("listening", "expected"), [("0.0.0.0", "127.0.0.1"), ("::", "::1")])
def test_without_a_default_route_it_is_the_loopback_address(
    monkeypatch: pytest.MonkeyPatch, listening: str, expected: str
) -> None:
    monkeypatch.setattr(checks, "_outgoing_address", lambda family: None)
    assert reachable_address(listening) == expected


def test_the_printed_settings_show_the_host_that_devices_get(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LATCHBOARD_MQTT_HOST", "10.0.0.9")
    assert load_settings().masked_values()["LATCHBOARD_MQTT_PUBLIC_HOST"] == "10.0.0.9"
    monkeypatch.setenv("LATCHBOARD_MQTT_PUBLIC_HOST", "mqtt.example.com")
    assert load_settings().masked_values()["LATCHBOARD_MQTT_PUBLIC_HOST"] == "mqtt.example.com"
