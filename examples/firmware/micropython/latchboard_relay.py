"""A device with relays and buttons for Latchboard in MicroPython: commands, state, telemetry, and the schedule while the
network is down.

It touches no hardware: `main.py` gives it functions that switch the relays and read the buttons and sensors. The relays are
channel 1, 2, …; the buttons follow. A device with one relay and no button does not speak of channels."""

import json
import random
import time

from latchboard_mqtt import MqttClient, MqttError

VERSION = "1.1.0"
KEEPALIVE_S = 30
TIME_EVERY_MS = 3_600_000
KNOWN_RESULTS = 16
BACKOFF_S = (1, 2, 4, 8, 16, 32, 60)
WAIT_MS = 100
WAIT_FOR_BUTTONS_MS = 10
DEBOUNCE_MS = 30
NEXT_PRESS_MS = 400  # a later one is another press
LONG_PRESS_MS = 1000


class Relay:
    """`switch(on)` sets it."""

    def __init__(self, name, switch):
        self.name, self.switch = name, switch
        self.on, self.by, self.command = False, "boot", None
        switch(False)  # off until somebody says on


class Button:
    """`is_pressed()` reads it. `toggles`: the channel of a relay that a single press switches, with or without a network."""

    def __init__(self, name, is_pressed, toggles=None):
        self.name, self.is_pressed, self.toggles = name, is_pressed, toggles
        self._down = self._read = self._is_long = False  # `_read`: as it was read last; `_down`: when it does not bounce any more
        self._presses = self._read_at = self._down_at = 0

    def press(self, now_ms):
        """SINGLE, DOUBLE, TRIPLE or LONG when a press is over, or long; None until then. `now_ms`: of `time.ticks_ms`."""
        down, since_read = self.is_pressed(), time.ticks_diff(now_ms, self._read_at)
        if down != self._read:
            self._read, self._read_at, since_read = down, now_ms, 0
        if self._read != self._down and since_read >= DEBOUNCE_MS:
            self._down = self._read
            if self._down:
                self._down_at = now_ms
            elif not self._is_long:
                self._presses = min(self._presses + 1, 3)
            self._is_long = self._is_long and self._down
        if self._down and not self._is_long and time.ticks_diff(now_ms, self._down_at) >= LONG_PRESS_MS:
            self._is_long, self._presses = True, 0
            return "LONG"
        if self._down or self._presses == 0 or since_read < NEXT_PRESS_MS:
            return None
        presses, self._presses = self._presses, 0
        return ("SINGLE", "DOUBLE", "TRIPLE")[presses - 1]


class RelayDevice:
    """`config`: the module from `GET /devices/{deviceId}/config?format=micropython`, or what a claim gave. `relays`, `buttons`:
    lists of Relay and Button. `read_metrics()`: a dict of numbers, booleans or strings for the telemetry. `tls`: an
    ssl.SSLContext, or None."""

    def __init__(self, config, relays, read_metrics, tls=None, telemetry_every_s=60, buttons=()):
        self._config, self._relays, self._read_metrics, self._tls = config, relays, read_metrics, tls
        self._buttons, self._wait_ms = buttons, WAIT_FOR_BUTTONS_MS if buttons else WAIT_MS
        self._telemetry_every_ms = telemetry_every_s * 1000
        self._mqtt = None
        self._plan_revision, self._plan = 0, []
        self._clock_offset_ms = None  # what to add to the board's clock; None until the service has told the time
        self._plan_done_s = 0  # edges until this second are settled
        self._results = []  # (id of the command, result), the newest last

    def run(self):
        """Never returns: connects again when the connection is lost, later and later, and keeps the schedule meanwhile."""
        failures = 0
        while True:
            try:
                self._connect()
                failures = 0
                self._serve()
            except (OSError, MqttError) as error:
                print("latchboard:", error)
            finally:
                if self._mqtt is not None:
                    self._mqtt.close()
                    self._mqtt = None
            # Half of it by chance, so that a fleet does not come back all at once.
            wait_ms = BACKOFF_S[min(failures, len(BACKOFF_S) - 1)] * 500
            self._wait(wait_ms + wait_ms * random.getrandbits(10) // 1024)
            failures += 1

    def _wait(self, wait_ms):
        began = time.ticks_ms()
        while time.ticks_diff(time.ticks_ms(), began) < wait_ms:
            self._run_plan()
            self._run_buttons()
            time.sleep_ms(self._wait_ms)

    def _connect(self):
        """The clock comes before the commands, so that a late command is recognised."""
        config, port = self._config, self._config.MQTT_TLS_PORT if self._tls else self._config.MQTT_PORT
        will = (config.TOPIC_PREFIX + "status", "offline")
        self._mqtt = MqttClient(
            config.MQTT_HOST,
            port,
            config.MQTT_CLIENT_ID,
            config.MQTT_USERNAME,
            config.MQTT_PASSWORD,
            will,
            KEEPALIVE_S,
            self._tls,
        )
        self._subscribe("time")
        self._ask_time()
        while self._clock_offset_ms is None and self._mqtt.receive(5000):
            self._handle_inbox()
        self._publish("status", "online", retain=True)
        self._report_state(1)
        self._publish("hello", self._hello())
        for channel in range(2, len(self._relays) + 1):  # after `hello`, by which the service knows them
            self._report_state(channel)
        self._subscribe("sched")
        self._subscribe("cmd")  # the last one: it tells the service that the device is ready

    def _hello(self):
        hello = {"fw": VERSION, "sched": self._plan_revision}
        if len(self._relays) + len(self._buttons) > 1:
            hello["ch"] = ["RELAY"] * len(self._relays) + ["INPUT"] * len(self._buttons)
            hello["names"] = [each.name for each in self._relays] + [each.name for each in self._buttons]
        return hello

    def _serve(self):
        last_ping = last_time = time.ticks_ms()
        last_telemetry = None
        while True:
            self._mqtt.receive(self._wait_ms)
            self._handle_inbox()
            self._run_plan()
            self._run_buttons()
            now = time.ticks_ms()
            if last_telemetry is None or time.ticks_diff(now, last_telemetry) >= self._telemetry_every_ms:
                last_telemetry = now
                self._send_telemetry()
            if time.ticks_diff(now, last_ping) >= KEEPALIVE_S * 500:
                last_ping = now
                self._mqtt.ping()
            if time.ticks_diff(now, last_time) >= TIME_EVERY_MS:
                last_time = now
                self._ask_time()

    def _handle_inbox(self):
        handlers = {"cmd": self._on_command, "sched": self._on_plan, "time": self._on_time}
        while self._mqtt.inbox:
            topic, payload = self._mqtt.inbox.pop(0)
            try:
                handlers[topic.rsplit("/", 1)[1]](json.loads(payload))
            except (ValueError, KeyError, TypeError) as error:
                print("latchboard: unreadable message on", topic, repr(error))

    def _send_telemetry(self):
        try:
            metrics = self._read_metrics()
        except Exception as error:  # a broken sensor must not cost us the relay
            print("latchboard: sensors:", repr(error))
            return
        self._publish("telemetry", self._stamped({"m": metrics}))

    # Commands

    def _on_command(self, order):
        order_id, cmd, channel = order["id"], order["cmd"], order.get("ch", 1)
        if not isinstance(channel, int) or isinstance(channel, bool):
            raise ValueError("ch is a number")
        for known, result in self._results:
            if known == order_id:  # the service has had no answer: give it again, do not run the command again
                self._publish("result", result)
                return
        self._publish("result", {"id": order_id, "status": "ack"})
        result = self._execute(order_id, cmd, channel, order.get("exp"))
        result["id"] = order_id
        self._results.append((order_id, result))  # before any wait: the command must not run twice
        if len(self._results) > KNOWN_RESULTS:
            self._results.pop(0)
        if self._has_relay(channel) and self._relays[channel - 1].command == order_id:
            self._report_state(channel)
        self._publish("result", result)

    def _execute(self, order_id, cmd, channel, expires_ms):
        """The fields of the result. Without a clock no deadline can be checked."""
        now_ms = self._now_ms()
        if now_ms is not None and expires_ms is not None and now_ms > expires_ms:
            return {"status": "expired"}
        if not 1 <= channel <= len(self._relays) + len(self._buttons):
            return {"status": "error", "code": "UNKNOWN_CHANNEL"}
        relay = self._relays[channel - 1] if self._has_relay(channel) else None
        if cmd == "GET_SCHEDULES":
            return {"status": "done", "data": {"rev": self._plan_revision, "s": self._plan}}
        if relay is not None and cmd in ("ON", "OFF", "TOGGLE"):
            self._set_relay(relay, not relay.on if cmd == "TOGGLE" else cmd == "ON", "cmd", order_id)
        elif cmd != "STATUS":
            return {"status": "error", "code": "UNSUPPORTED"}
        return {"status": "done"} if relay is None else {"status": "done", "relay": "ON" if relay.on else "OFF"}

    # The channels

    def _has_relay(self, channel):
        return 1 <= channel <= len(self._relays)

    def _set_relay(self, relay, on, by, command=None):
        relay.switch(on)
        relay.on, relay.by, relay.command = on, by, command

    def _report_state(self, channel):
        """Only the state of the first relay is retained."""
        relay = self._relays[channel - 1]
        state = {"relay": "ON" if relay.on else "OFF", "by": relay.by}
        if channel != 1:
            state["ch"] = channel
        if relay.command is not None:
            state["id"] = relay.command
        self._publish("state", self._stamped(state), retain=channel == 1)

    def _run_buttons(self):
        """A press is over at once, so one while the network is down is not reported. What it toggles, it toggles at any rate."""
        for number, button in enumerate(self._buttons, len(self._relays) + 1):
            press = button.press(time.ticks_ms())
            toggled = button.toggles if press == "SINGLE" and button.toggles else None
            if toggled is not None:
                relay = self._relays[toggled - 1]
                self._set_relay(relay, not relay.on, "button")
            if press is not None and self._mqtt is not None:
                self._publish("state", {"ch": number, "action": press})
                if toggled is not None:
                    self._report_state(toggled)

    # The schedule

    def _on_plan(self, plan):
        rows = []
        for slot, on_s, off_s, enabled, *channel in plan["s"]:
            if len(channel) > 1:
                raise ValueError("a slot has four or five values")
            rows.append([slot, int(on_s), int(off_s), bool(enabled)] + [int(number) for number in channel])
        self._plan_revision, self._plan = int(plan["rev"]), rows
        self._publish("sched/rev", {"rev": self._plan_revision}, retain=True)

    def _run_plan(self):
        """Run the edges since the last call, in their order. What was due before the clock was known, the service decides. A slot
        for a channel that this firmware lacks is not run here; the service runs it."""
        now_ms = self._now_ms()
        if now_ms is None:
            return
        since_s, now_s = self._plan_done_s, now_ms // 1000
        edges = {}
        for _, on_s, off_s, enabled, *channel in self._plan:
            channel = channel[0] if channel else 1
            if enabled and self._has_relay(channel):
                edges[on_s, channel] = True  # where one slot ends and another begins, the relay stays on
                edges[off_s, channel] = edges.get((off_s, channel), False)
        for due_s, channel in sorted(edge for edge in edges if since_s < edge[0] <= now_s):
            self._plan_done_s = due_s
            self._set_relay(self._relays[channel - 1], edges[due_s, channel], "sched")
            if self._mqtt is not None:
                self._report_state(channel)
        self._plan_done_s = max(since_s, now_s)

    # The clock

    def _ask_time(self):
        self._publish("time/get", "", qos=0)

    def _on_time(self, answer):
        first = self._clock_offset_ms is None
        self._clock_offset_ms = answer["t"] - time.time_ns() // 1_000_000
        if first:
            self._plan_done_s = answer["t"] // 1000

    def _now_ms(self):
        """Unix milliseconds, or None."""
        return None if self._clock_offset_ms is None else time.time_ns() // 1_000_000 + self._clock_offset_ms

    def _stamped(self, message):
        now_ms = self._now_ms()
        if now_ms is not None:
            message["ts"] = now_ms
        return message

    def _publish(self, below, message, retain=False, qos=1):
        payload = message if isinstance(message, str) else json.dumps(message)
        self._mqtt.publish(self._config.TOPIC_PREFIX + below, payload, retain, qos)

    def _subscribe(self, below):
        self._mqtt.subscribe(self._config.TOPIC_PREFIX + below)
