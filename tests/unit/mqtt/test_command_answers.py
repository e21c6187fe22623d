"""What stock firmware says after a command decides how the command ends; what it says late does not decide anything."""

from __future__ import annotations

import json
from typing import Any

import pytest

from adapters.mqtt import codec as codec_module
from adapters.mqtt.codec import ProfileDispatchingDeviceCodec
from domain.devices.messages import CommandResultReport, DeviceReport, HelloReport, OutboundCommand, RelayReport, StateQuestion
from domain.devices.model import FirmwareProfile
from domain.kernel.ids import DeviceId

DEVICE = DeviceId("dev_aaaaaaaaaaaaaaaaaaaa")
NOW = 1_800_000_000_000


class Conversation:
    """One codec with one device."""

    def __init__(self, profile: FirmwareProfile) -> None:
        self.codec = ProfileDispatchingDeviceCodec()
        self.profile = profile
        self.now_ms = NOW

    def send(self, cmd: str, params: Any = None, execution_id: str = "exe_1", device_id: DeviceId = DEVICE) -> list[str]:
        command = OutboundCommand(execution_id, cmd, params, self.now_ms + 60_000)
        messages = self.codec.encode_command(self.profile, device_id, command, self.now_ms)
        return [message.payload.decode() for message in messages]

    def says(self, topic: str, payload: Any, after_ms: int = 10) -> list[DeviceReport]:
        """The reports about the relay, commands and questions."""
        self.now_ms += after_ms
        raw = payload if isinstance(payload, str) else json.dumps(payload)
        reports = self.codec.decode(self.profile, topic, raw.encode(), False, DEVICE, self.now_ms)
        kept = (RelayReport, CommandResultReport, StateQuestion, HelloReport)
        return [report for report in reports if isinstance(report, kept)]

    def result(self, topic: str, payload: Any) -> CommandResultReport:
        [report] = self.says(topic, payload)
        assert isinstance(report, CommandResultReport)
        return report


@pytest.fixture
def plug() -> Conversation:
    return Conversation(FirmwareProfile.TASMOTA)


@pytest.fixture
def shelly() -> Conversation:
    return Conversation(FirmwareProfile.SHELLY)


class TestTasmota:
    def test_the_relay_that_it_reports_is_part_of_the_result(self, plug: Conversation) -> None:
        plug.send("ON")
        assert plug.says("stat/RESULT", {"POWER1": "ON"}) == [RelayReport(True)]
        assert plug.says("stat/POWER1", "ON") == [RelayReport(True)]
        assert plug.result("stat/ACK", "exe_1") == CommandResultReport("exe_1", "done", None, True, {"POWER1": "ON"})

    def test_an_answer_reaches_the_result(self, plug: Conversation) -> None:
        plug.send("DIMMER", 60)
        plug.says("stat/RESULT", {"POWER": "ON", "Dimmer": 60})
        assert plug.result("stat/ACK", "exe_1").data == {"POWER": "ON", "Dimmer": 60}

    @pytest.mark.parametrize(
        ("answer", "code"),
        [
            ({"Command": "Unknown"}, "UNKNOWN_COMMAND"),
            ({"Command": "Unknown", "Input": "DIMER"}, "UNKNOWN_COMMAND"),
            ({"Command": "Error"}, "ERROR"),
            ({"DIMER": "Error"}, "ERROR"),
            ({"Dimer": "Failed"}, "FAILED"),
        ],
    )
    def test_what_it_refuses_has_failed(self, plug: Conversation, answer: dict[str, str], code: str) -> None:
        plug.send("DIMER", 60)
        plug.says("stat/RESULT", answer)
        ended = plug.result("stat/ACK", "exe_1")
        assert (ended.status, ended.code, ended.data) == ("error", code, answer)

    def test_what_it_said_before_the_command_is_no_answer(self, plug: Conversation) -> None:
        plug.says("stat/RESULT", {"Command": "Unknown"})
        plug.now_ms += 1
        plug.send("DIMMER", 60)
        plug.says("stat/RESULT", {"Dimmer": 60})
        assert plug.result("stat/ACK", "exe_1") == CommandResultReport("exe_1", "done", data={"Dimmer": 60})

    def test_each_of_several_commands_gets_its_own_answer(self, plug: Conversation) -> None:
        for cmd, execution_id in (("DIMMER", "exe_1"), ("NOPE", "exe_2"), ("ON", "exe_3")):
            plug.send(cmd, execution_id=execution_id)
        plug.says("stat/RESULT", {"Dimmer": 60})
        assert plug.result("stat/ACK", "exe_1").data == {"Dimmer": 60}
        plug.says("stat/RESULT", {"Command": "Unknown"})
        assert plug.result("stat/ACK", "exe_2").code == "UNKNOWN_COMMAND"
        plug.says("stat/RESULT", {"POWER": "ON"})
        assert plug.result("stat/ACK", "exe_3").status == "done"

    def test_it_is_asked_for_the_relay_that_it_did_not_report(self, plug: Conversation) -> None:
        plug.send("ON")
        ack, question = plug.says("stat/ACK", "exe_1")
        assert ack == CommandResultReport("exe_1", "ack")
        assert isinstance(question, StateQuestion)
        assert question.message.topic == "cmnd/STATE"
        assert plug.says("stat/RESULT", {"POWER": "ON"}) == [CommandResultReport("exe_1", "done", relay=True)]
        assert plug.says("stat/RESULT", {"POWER": "OFF"}) == [RelayReport(False)]

    def test_a_late_state_is_no_answer_to_the_question(self, plug: Conversation) -> None:
        plug.send("ON")
        plug.says("stat/ACK", "exe_1")
        assert plug.says("tele/STATE", {"POWER": "ON"}, after_ms=300_000) == [RelayReport(True)]

    def test_a_toggle_after_which_the_relay_is_as_before_has_failed(self, plug: Conversation) -> None:
        plug.says("tele/STATE", {"POWER": "ON"})
        plug.send("TOGGLE")
        plug.says("stat/RESULT", {"POWER": "ON"})
        assert plug.result("stat/ACK", "exe_1").code == "STATE_MISMATCH"

    def test_two_toggles_in_a_row_are_done(self, plug: Conversation) -> None:
        plug.says("tele/STATE", {"POWER": "ON"})
        for execution_id in ("exe_1", "exe_2"):
            plug.send("TOGGLE", execution_id=execution_id)
        for execution_id, word in (("exe_1", "OFF"), ("exe_2", "ON")):
            plug.says("stat/RESULT", {"POWER": word})
            assert plug.result("stat/ACK", execution_id).status == "done"

    def test_a_command_that_never_ended_does_not_spoil_the_next_toggle(self, plug: Conversation) -> None:
        plug.says("tele/STATE", {"POWER": "ON"})
        plug.send("OFF", execution_id="exe_lost")
        plug.says("stat/POWER", "OFF", after_ms=100_000)  # at the button, long after the deadline
        plug.send("TOGGLE")
        plug.says("stat/RESULT", {"POWER": "ON"})
        assert plug.result("stat/ACK", "exe_1").status == "done"

    @pytest.mark.parametrize(("reported", "status"), [("ON", "done"), ("OFF", "error")])
    def test_another_relay_is_compared_too(self, plug: Conversation, reported: str, status: str) -> None:
        plug.send("POWER2", "ON")
        plug.says("stat/RESULT", {"POWER2": reported})
        assert plug.result("stat/ACK", "exe_1").status == status

    def test_after_a_restart_of_the_service_an_end_without_an_answer_is_an_acknowledgement(self, plug: Conversation) -> None:
        reports = plug.says("stat/ACK", "exe_1")
        assert [type(report) for report in reports] == [CommandResultReport, StateQuestion]
        assert reports[0] == CommandResultReport("exe_1", "ack")

    def test_an_upgrade_is_done_after_the_boot_that_follows_it(self, plug: Conversation) -> None:
        [backlog] = plug.send("UPGRADE", 1)
        assert backlog.endswith(f"Publish devices/{DEVICE}/stat/STARTED exe_1")
        plug.says("stat/RESULT", {"Upgrade": "Version 15.1.0 from http://ota.tasmota.com/tasmota.bin.gz"})
        assert plug.result("stat/STARTED", "exe_1").status == "ack"
        boot = {"Info1": {"Module": "Basic", "Version": "15.1.0(tasmota)"}}
        assert plug.says("tele/INFO1", boot) == [HelloReport("15.1.0(tasmota)", None)], "it has not said that it succeeded"
        assert plug.says("stat/UPGRADE", {"Upgrade": "Successful. Restarting"}, after_ms=90_000) == []
        _, done = plug.says("tele/INFO1", boot)
        assert isinstance(done, CommandResultReport)
        data = {"Upgrade": "Successful. Restarting", "Version": "15.1.0(tasmota)"}
        assert (done.execution_id, done.status, done.data) == ("exe_1", "done", data)

    def test_an_upgrade_that_fails_has_failed(self, plug: Conversation) -> None:
        plug.send("UPGRADE", 1)
        plug.says("stat/RESULT", {"Upgrade": "Version 15.1.0 from http://ota.tasmota.com/tasmota.bin.gz"})
        plug.says("stat/STARTED", "exe_1")
        assert plug.result("stat/UPGRADE", {"Upgrade": "Failed HTTP status code 404"}).code == "UPGRADE_FAILED"

    def test_an_upgrade_that_does_not_begin_has_failed(self, plug: Conversation) -> None:
        plug.send("UPGRADE", 0)
        plug.says("stat/RESULT", {"Upgrade": "1 or >15.1.0 to upgrade"})
        assert plug.result("stat/STARTED", "exe_1").code == "NOT_STARTED"

    def test_a_restart_is_done_with_the_boot(self, plug: Conversation) -> None:
        plug.send("RESTART", 1)
        plug.says("stat/RESULT", {"Restart": "Restarting"})
        assert plug.result("stat/STARTED", "exe_1").status == "ack"
        _, done = plug.says("tele/INFO1", {"Info1": {"Version": "15.1.0"}})
        assert (done.execution_id, done.status) == ("exe_1", "done")  # type: ignore[union-attr]


def notify(output: bool) -> dict[str, Any]:
    return {"src": "s", "dst": "d", "method": "NotifyStatus", "params": {"ts": 1.0, "switch:0": {"id": 0, "output": output}}}


class TestShelly:
    def test_the_answer_is_a_state(self, shelly: Conversation) -> None:
        shelly.send("ON")
        assert shelly.result("answer/rpc", {"id": "exe_1", "result": {"was_on": False}}).relay is True
        shelly.send("TOGGLE")
        assert shelly.result("answer/rpc", {"id": "exe_1", "result": {"was_on": True}}).relay is False
        shelly.send("STATUS")
        assert shelly.result("answer/rpc", {"id": "exe_1", "result": {"id": 0, "output": True}}).relay is True
        shelly.send("ON")
        assert shelly.result("answer/rpc", {"id": "exe_1", "error": {"code": -103, "message": "no"}}).relay is None

    @pytest.mark.parametrize("first", ["notification", "answer"])
    def test_a_stale_status_is_asked_again_and_not_believed(self, shelly: Conversation, first: str) -> None:
        shelly.says("status/switch:0", {"id": 0, "output": False})
        shelly.now_ms += 60_000
        shelly.send("ON")
        if first == "notification":
            shelly.says("events/rpc", notify(True))
        shelly.result("answer/rpc", {"id": "exe_1", "result": {"was_on": False}})
        [question] = shelly.says("status/switch:0", {"id": 0, "output": False}, after_ms=100)
        assert isinstance(question, StateQuestion)
        asked = json.loads(question.message.payload)
        assert (asked["method"], asked["params"], asked["src"]) == ("Switch.GetStatus", {"id": 0}, f"devices/{DEVICE}/answer")
        assert shelly.says("status/switch:0", {"id": 0, "output": False}) == [], "it has been asked already"
        assert shelly.says("answer/rpc", {"id": asked["id"], "result": {"id": 0, "output": True}}) == [RelayReport(True)]

    def test_the_answer_to_the_question_counts_also_when_it_is_the_contrary_state(self, shelly: Conversation) -> None:
        shelly.send("ON")
        shelly.result("answer/rpc", {"id": "exe_1", "result": {"was_on": False}})
        [question] = shelly.says("status/switch:0", {"id": 0, "output": False})
        assert isinstance(question, StateQuestion)
        answer = {"id": "question", "result": {"id": 0, "output": False, "apower": 0.0}}
        assert shelly.says("answer/rpc", answer) == [RelayReport(False)]

    def test_a_button_within_two_seconds_is_believed_from_the_same_source(self, shelly: Conversation) -> None:
        shelly.says("events/rpc", notify(True))
        shelly.says("status/switch:0", {"id": 0, "output": True})
        assert shelly.says("events/rpc", notify(False)) == [RelayReport(False)]

    def test_a_contrary_state_after_two_seconds_is_believed(self, shelly: Conversation) -> None:
        shelly.says("events/rpc", notify(True))
        assert shelly.says("status/switch:0", {"id": 0, "output": False}, after_ms=2_001) == [RelayReport(False)]


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec_module, "MAX_REMEMBERED", 2)
    plug = Conversation(FirmwareProfile.TASMOTA)
    for number in range(5):
        plug.send("ON", device_id=DeviceId(f"dev_{number:020}"))
    assert len(plug.codec._memories) == 2
    plug.send("ON")
    for number in range(200):
        plug.send("ON", execution_id=f"exe_{number}")
        plug.says("stat/RESULT", {"Dimmer": number})
    memory = plug.codec._memories[FirmwareProfile.TASMOTA, DEVICE]
    assert len(memory.sent) <= 64
    assert len(memory.answers) <= 32
