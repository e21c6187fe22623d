"""Each firmware's own words, as its documentation and recorded traffic show them, become the same few reports."""

from __future__ import annotations

import json

import pytest

from adapters.mqtt.codec import ProfileDispatchingDeviceCodec
from domain.devices.messages import (
    CommandResultReport,
    DevicePlanRevisionReport,
    DeviceReport,
    HelloReport,
    OutboundCommand,
    PresenceReport,
    RelayReport,
    StockFirmwareTelemetryReport,
    TimeRequest,
    UnreadableMessage,
)
from domain.devices.model import FirmwareProfile
from domain.kernel.ids import DeviceId

DEVICE = DeviceId("dev_aaaaaaaaaaaaaaaaaaaa")
NOW = 1_800_000_000_000
codec = ProfileDispatchingDeviceCodec()


def reply(profile: FirmwareProfile, topic: str, payload: bytes | str) -> list[DeviceReport]:
    raw = payload.encode() if isinstance(payload, str) else payload
    return list(codec.decode(profile, topic, raw, False))


def reported(profile: FirmwareProfile, cmd: str, params: object = None) -> list[tuple[str, bytes]]:
    order = OutboundCommand("exe_bbbbbbbbbbbbbbbbbbbb", cmd, params, NOW + 60_000)  # type: ignore[arg-type]
    return [(message.topic, message.payload) for message in codec.encode_command(profile, DEVICE, order, NOW)]


@pytest.mark.parametrize(
    ("topic", "payload", "report"),
    [
        ("status", "online", PresenceReport(True)),
        ("status", "offline", PresenceReport(False)),
        ("state", "ON", RelayReport(True)),
        ("state", "off", RelayReport(False)),
        ("state", '{"relay":"ON","by":"cmd","id":"exe_1","ts":1}', RelayReport(True, "exe_1", "cmd")),
        ("state", '{"relay":"OFF","future":"field"}', RelayReport(False)),
        ("result", '{"id":"exe_1","status":"done","relay":"ON"}', CommandResultReport("exe_1", "done", None, True, None)),
        (
            "result",
            '{"id":"exe_1","status":"error","code":"STUCK","data":{"a":1}}',
            CommandResultReport("exe_1", "error", "STUCK", None, {"a": 1}),
        ),
        ("sched/rev", '{"rev": 17}', DevicePlanRevisionReport(17)),
        ("hello", '{"fw":"1.2.0","sched":17}', HelloReport("1.2.0", 17)),
        ("time/get", "", TimeRequest()),
    ],
)
def test_the_native_firmware_is_understood(topic: str, payload: str, report: DeviceReport) -> None:
    assert reply(FirmwareProfile.NATIVE, topic, payload) == [report]


@pytest.mark.parametrize(
    ("topic", "payload"),
    [
        ("status", "maybe"),
        ("state", '{"relay":"BROKEN"}'),
        ("state", "{"),
        ("state", b"\xff\xfe"),
        ("state", '{"relay": NaN}'),
        ("result", '{"id":"exe_1","status":"finished"}'),
        ("result", '{"status":"done"}'),
        ("result", "[" * 100_000),
        ("sched/rev", '{"rev": -1}'),
        ("sched/rev", '{"rev": 1e999}'),
        ("elsewhere", "{}"),
    ],
)
def test_what_a_native_device_garbles_is_unreadable_and_never_an_exception(topic: str, payload: bytes | str) -> None:
    [report] = reply(FirmwareProfile.NATIVE, topic, payload)
    assert isinstance(report, UnreadableMessage)


def test_a_native_command_carries_its_id_and_its_deadline_twice() -> None:
    [message] = codec.encode_command(
        FirmwareProfile.NATIVE, DEVICE, OutboundCommand("exe_1", "ON", {"level": 3}, NOW + 1_500), NOW
    )
    assert json.loads(message.payload) == {"id": "exe_1", "cmd": "ON", "params": {"level": 3}, "exp": NOW + 1_500}
    assert (message.topic, message.expiry_s, message.retain, message.qos) == ("cmd", 2, False, 1)


def test_tasmota_switches_by_a_backlog_that_acknowledges_with_the_id() -> None:
    [(topic, payload)] = reported(FirmwareProfile.TASMOTA, "ON")
    assert topic == "cmnd/Backlog0"
    assert payload == f"Power1 ON; Publish devices/{DEVICE}/stat/ACK exe_bbbbbbbbbbbbbbbbbbbb".encode()
    assert reply(FirmwareProfile.TASMOTA, "stat/ACK", "exe_bbbbbbbbbbbbbbbbbbbb") == [
        CommandResultReport("exe_bbbbbbbbbbbbbbbbbbbb", "done")
    ]


def test_tasmota_parameters_cannot_smuggle_in_a_second_command() -> None:
    assert reported(FirmwareProfile.TASMOTA, "DIMMER", "50; Power1 ON") == []
    assert reported(FirmwareProfile.TASMOTA, "DIMMER", "50\nPower1 ON") == []
    assert reported(FirmwareProfile.TASMOTA, "DIMMER", 50)[0][1].startswith(b"DIMMER 50; ")


@pytest.mark.parametrize(
    ("topic", "payload", "reports"),
    [
        ("tele/LWT", "Online", [PresenceReport(True)]),
        ("tele/LWT", "Offline", [PresenceReport(False)]),
        ("stat/POWER", "ON", [RelayReport(True)]),
        ("stat/POWER1", "OFF", [RelayReport(False)]),
        ("stat/RESULT", '{"POWER":"ON"}', [RelayReport(True)]),
        (
            "tele/STATE",
            '{"Time":"2026-11-21T04:00:00","Uptime":"0T00:10:12","POWER1":"OFF","Wifi":{"RSSI":82}}',
            [RelayReport(False), StockFirmwareTelemetryReport(b'{"m":{"Wifi.RSSI":82},"u":{"Wifi.RSSI":"%"}}')],
        ),
        ("stat/RESULT", '{"TelePeriod":60}', [StockFirmwareTelemetryReport(b'{"m":{"TelePeriod":60}}')]),
        (
            "tele/INFO1",
            '{"Info1":{"Module":"Sonoff Basic","Version":"14.2.0(tasmota)","FallbackTopic":"cmnd/DVES_1_fb/","GroupTopic":"cmnd/tasmotas/"}}',
            [StockFirmwareTelemetryReport(b'{"m":{"Info1.Module":"Sonoff Basic"}}'), HelloReport("14.2.0(tasmota)", None)],
        ),
        (
            "tele/INFO1",
            '{"Module":"Sonoff Basic","Version":"8.5.1(tasmota)"}',
            [StockFirmwareTelemetryReport(b'{"m":{"Info1.Module":"Sonoff Basic"}}'), HelloReport("8.5.1(tasmota)", None)],
        ),
        ("tele/INFO1", '{"Info1":{"Version":7}}', []),
    ],
)
def test_tasmota_is_understood(topic: str, payload: str, reports: list[DeviceReport]) -> None:
    assert reply(FirmwareProfile.TASMOTA, topic, payload) == reports


SENSORS = [
    (
        '{"Time":"2026-11-21T04:00:00","DS18B20":{"Id":"0316A2","Temperature":21.5},"TempUnit":"C"}',
        {"DS18B20.Temperature": (21.5, "°C")},
    ),
    (
        '{"Time":"2026-11-21T04:00:00","BME280":{"Temperature":70.1,"Humidity":47.6,"DewPoint":49,"Pressure":29.4},'
        '"PressureUnit":"inHg","TempUnit":"F"}',
        {
            "BME280.Temperature": (70.1, "°F"),
            "BME280.Humidity": (47.6, "%"),
            "BME280.DewPoint": (49, "°F"),
            "BME280.Pressure": (29.4, "inHg"),
        },
    ),
    (
        '{"Time":"2026-11-21T04:00:00","ENERGY":{"TotalStartTime":"2020-10-21T22:15:00","Total":[3.7,0.1],"Period":[1,0],'
        '"Power":[12,0],"Factor":[1.00,0.00],"Voltage":233,"Current":[0.052,0.000]}}',
        {
            "ENERGY.Total.1": (3.7, "kWh"),
            "ENERGY.Total.2": (0.1, "kWh"),
            "ENERGY.Period.1": (1, None),
            "ENERGY.Period.2": (0, None),
            "ENERGY.Power.1": (12, "W"),
            "ENERGY.Power.2": (0, "W"),
            "ENERGY.Factor.1": (1, None),
            "ENERGY.Factor.2": (0, None),
            "ENERGY.Voltage": (233, "V"),
            "ENERGY.Current.1": (0.052, "A"),
            "ENERGY.Current.2": (0, "A"),
        },
    ),
    ('{"Time":"2026-11-21T04:00:00","Switch1":"ON","DS18B20":{"Temperature":null},"TempUnit":7}', {"Switch1": ("ON", None)}),
]


@pytest.mark.parametrize(("payload", "readings"), SENSORS)
def test_tasmota_sensors_become_metrics_with_units_and_without_ids(payload: str, readings: dict[str, tuple[object, str]]) -> None:
    [report] = reply(FirmwareProfile.TASMOTA, "tele/SENSOR", payload)
    assert isinstance(report, StockFirmwareTelemetryReport)
    content = json.loads(report.payload)
    assert content["m"] == {metric: value for metric, (value, _) in readings.items()}
    assert content.get("u", {}) == {metric: unit for metric, (_, unit) in readings.items() if unit is not None}


def test_tasmota_is_queried_for_its_state_when_it_connects() -> None:
    assert [(message.topic, message.payload) for message in codec.state_queries(FirmwareProfile.TASMOTA)] == [("cmnd/STATE", b"")]


@pytest.mark.parametrize(
    ("topic", "payload", "reports"),
    [
        ("status", "online", [PresenceReport(True)]),
        ("switch/relay/state", "ON", [RelayReport(True)]),
        ("sensor/temperature/state", "21.5", [StockFirmwareTelemetryReport(b'{"m":{"temperature":21.5}}')]),
        ("sensor/temperature/state", "nan", []),
        ("binary_sensor/door/state", "ON", [StockFirmwareTelemetryReport(b'{"m":{"door":true}}')]),
        ("text_sensor/mode/state", "eco", [StockFirmwareTelemetryReport(b'{"m":{"mode":"eco"}}')]),
        ("debug", "[I][app]", []),
    ],
)
def test_esphome_is_understood(topic: str, payload: str, reports: list[DeviceReport]) -> None:
    assert reply(FirmwareProfile.ESPHOME, topic, payload) == reports


def test_esphome_switches_by_its_command_topic_and_refuses_what_it_cannot_say() -> None:
    assert reported(FirmwareProfile.ESPHOME, "OFF") == [
        ("switch/relay/command", b"OFF"),
        ("ask/relay/command", b"exe_bbbbbbbbbbbbbbbbbbbb"),
    ]
    assert reply(FirmwareProfile.ESPHOME, "answer/relay", "exe_1 OFF") == [CommandResultReport("exe_1", "done", relay=False)]
    assert reported(FirmwareProfile.ESPHOME, "FLUSH") == []


def test_shelly_switches_by_rpc_and_answers_with_the_id() -> None:
    [(topic, payload)] = reported(FirmwareProfile.SHELLY, "ON")
    assert topic == "rpc"
    assert json.loads(payload) == {
        "id": "exe_bbbbbbbbbbbbbbbbbbbb",
        "src": f"devices/{DEVICE}/answer",
        "method": "Switch.Set",
        "params": {"id": 0, "on": True},
    }
    answer = '{"id":"exe_bbbbbbbbbbbbbbbbbbbb","src":"shellyplus1-a8032abe54dc","result":{"was_on":false}}'
    assert reply(FirmwareProfile.SHELLY, "answer/rpc", answer) == [
        CommandResultReport("exe_bbbbbbbbbbbbbbbbbbbb", "done", data={"was_on": False})
    ]
    refusal = '{"id":"exe_1","error":{"code":-103,"message":"Invalid argument"}}'
    assert reply(FirmwareProfile.SHELLY, "answer/rpc", refusal) == [
        CommandResultReport("exe_1", "error", code="-103", data="Invalid argument")
    ]


def test_a_partial_shelly_notification_says_only_what_changed() -> None:
    notify = '{"src":"shelly","dst":"x","method":"NotifyStatus","params":{"ts":1.0,"switch:0":{"id":0,"apower":8.9}}}'
    assert reply(FirmwareProfile.SHELLY, "events/rpc", notify) == [StockFirmwareTelemetryReport(b'{"m":{"apower":8.9}}')]
    whole = '{"id":0,"source":"MQTT","output":true,"temperature":{"tC":41.2,"tF":106.2}}'
    relay, values = reply(FirmwareProfile.SHELLY, "status/switch:0", whole)
    assert relay == RelayReport(True)
    assert isinstance(values, StockFirmwareTelemetryReport)
    assert json.loads(values.payload) == {"m": {"temperature.tC": 41.2, "temperature.tF": 106.2}}


@pytest.mark.parametrize(
    ("profile", "topic_filter"),
    [
        (FirmwareProfile.NATIVE, "cmd"),
        (FirmwareProfile.NATIVE, "#"),
        (FirmwareProfile.TASMOTA, "cmnd/#"),
        (FirmwareProfile.ESPHOME, "switch/relay/command"),
        (FirmwareProfile.SHELLY, "rpc"),
    ],
)
def test_a_device_hears_commands_once_it_subscribed_to_them(profile: FirmwareProfile, topic_filter: str) -> None:
    assert codec.is_command_subscription(profile, topic_filter)
    assert not codec.is_command_subscription(profile, "sched")
