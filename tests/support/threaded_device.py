"""A device on its own thread, for benches: a call returns when its command has arrived. Also measures the service's CPU and memory."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import httpx
import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from support.service import Service
from support.waiting import TIMEOUT_S


def register_device(api: httpx.Client, name: str) -> tuple[str, str]:
    new = api.post("/devices/register", json={"name": name, "boardType": "esp32", "appType": "pump"}).json()
    credentials = api.post(f"/devices/{new['deviceId']}/credentials", json={}).json()
    return new["deviceId"], credentials["mqttPassword"]


class ThreadedDevice:
    """One MQTT device that records when its commands arrive."""

    def __init__(self, service: Service, device_id: str, password: str) -> None:
        self.device_id = device_id
        self._arrived = threading.Event()
        self._client = mqtt.Client(CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
        self._client.username_pw_set(device_id, password)
        self._client.on_message = lambda *_: self._take()
        self.arrivals: list[float] = []
        """Arrival times of commands, wall clock."""
        ready = threading.Event()
        self._client.on_subscribe = lambda *_: ready.set()
        self._client.connect("127.0.0.1", service.mqtt_port)
        self._client.loop_start()
        self._client.subscribe(f"devices/{device_id}/cmd", 1)
        assert ready.wait(TIMEOUT_S)

    def report(self, temperature: float) -> None:
        self._client.publish(f"devices/{self.device_id}/telemetry", json.dumps({"temperature": temperature}), 1).wait_for_publish(
            5
        )

    def _take(self) -> None:
        self.arrivals.append(time.time())
        self._arrived.set()

    def seconds_to_command(self) -> float:
        """Seconds from a reading above the limit to the command."""
        self.report(20)
        self._arrived.clear()
        began = time.perf_counter()
        self._client.publish(f"devices/{self.device_id}/telemetry", json.dumps({"temperature": 31}), 1)
        assert self._arrived.wait(TIMEOUT_S)
        return time.perf_counter() - began


def cpu_seconds(service: Service) -> float:
    assert service.process is not None
    fields = Path(f"/proc/{service.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def resident_mib(service: Service) -> int:
    assert service.process is not None
    line = next(row for row in Path(f"/proc/{service.process.pid}/status").read_text().splitlines() if row.startswith("VmRSS"))
    return int(line.split()[1]) // 1024
