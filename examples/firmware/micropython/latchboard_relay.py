"""A relay device for Latchboard in MicroPython: commands, state, telemetry, and the schedule while the network is down.

It touches no hardware: `main.py` gives it a function that switches the relay and one that reads the sensors."""

import json
import random
import time

from latchboard_mqtt import MqttClient, MqttError

VERSION = "1.0.0"
KEEPALIVE_S = 30
TIME_EVERY_MS = 3_600_000
KNOWN_RESULTS = 16
BACKOFF_S = (1, 2, 4, 8, 16, 32, 60)
WAIT_MS = 100


class RelayDevice:
    """`config`: the module from `GET /devices/{deviceId}/config?format=micropython`, or what a claim gave. `switch(on)` sets
    the relay. `read_metrics()`: a dict of numbers, booleans or strings for the telemetry. `tls`: an ssl.SSLContext, or None."""

    def __init__(self, config, switch, read_metrics, tls=None, telemetry_every_s=60):
        self._config, self._switch, self._read_metrics, self._tls = config, switch, read_metrics, tls
        self._telemetry_every_ms = telemetry_every_s * 1000
        self._mqtt = None
        self._relay, self._by, self._command = False, "boot", None
        self._plan_revision, self._plan = 0, []
        self._clock_offset_ms = None  # what to add to the board's clock; None until the service has told the time
        self._plan_done_s = 0  # edges until this second are settled
        self._results = []  # (id of the command, result), the newest last
        switch(False)  # off until somebody says on

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
            time.sleep_ms(WAIT_MS)

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
        self._report_state()
        self._publish("hello", {"fw": VERSION, "sched": self._plan_revision})
        self._subscribe("sched")
        self._subscribe("cmd")  # the last one: it tells the service that the device is ready

    def _serve(self):
        last_ping = last_time = time.ticks_ms()
        last_telemetry = None
        while True:
            self._mqtt.receive(WAIT_MS)
            self._handle_inbox()
            self._run_plan()
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
        order_id, cmd = order["id"], order["cmd"]
        for known, result in self._results:
            if known == order_id:  # the service has had no answer: give it again, do not run the command again
                self._publish("result", result)
                return
        self._publish("result", {"id": order_id, "status": "ack"})
        result = self._execute(order_id, cmd, order.get("exp"))
        result["id"] = order_id
        self._results.append((order_id, result))  # before any wait: the command must not run twice
        if len(self._results) > KNOWN_RESULTS:
            self._results.pop(0)
        if self._command == order_id:
            self._report_state()
        self._publish("result", result)

    def _execute(self, order_id, cmd, expires_ms):
        """The fields of the result. Without a clock no deadline can be checked."""
        now_ms = self._now_ms()
        if now_ms is not None and expires_ms is not None and now_ms > expires_ms:
            return {"status": "expired"}
        if cmd in ("ON", "OFF", "TOGGLE"):
            self._set_relay(not self._relay if cmd == "TOGGLE" else cmd == "ON", "cmd", order_id)
        elif cmd == "GET_SCHEDULES":
            return {"status": "done", "data": {"rev": self._plan_revision, "s": self._plan}}
        elif cmd != "STATUS":
            return {"status": "error", "code": "UNSUPPORTED"}
        return {"status": "done", "relay": "ON" if self._relay else "OFF"}

    def _set_relay(self, on, by, command=None):
        self._switch(on)
        self._relay, self._by, self._command = on, by, command

    def _report_state(self):
        state = {"relay": "ON" if self._relay else "OFF", "by": self._by}
        if self._command is not None:
            state["id"] = self._command
        self._publish("state", self._stamped(state), retain=True)

    # The schedule

    def _on_plan(self, plan):
        rows = [[slot, int(on_s), int(off_s), bool(enabled)] for slot, on_s, off_s, enabled in plan["s"]]
        self._plan_revision, self._plan = int(plan["rev"]), rows
        self._publish("sched/rev", {"rev": self._plan_revision}, retain=True)

    def _run_plan(self):
        """Run the edges since the last call, in their order. What was due before the clock was known, the service decides."""
        now_ms = self._now_ms()
        if now_ms is None:
            return
        since_s, now_s = self._plan_done_s, now_ms // 1000
        edges = {}
        for _, on_s, off_s, enabled in self._plan:
            if enabled:
                edges[on_s] = True  # where one slot ends and another begins, the relay stays on
                edges[off_s] = edges.get(off_s, False)
        for due_s in sorted(due_s for due_s in edges if since_s < due_s <= now_s):
            self._plan_done_s = due_s
            self._set_relay(edges[due_s], "sched")
            if self._mqtt is not None:
                self._report_state()
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
