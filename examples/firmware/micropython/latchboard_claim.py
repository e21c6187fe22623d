"""With a provisioning code the board gets its own credentials from the service at its first start, and keeps them in its flash.

The token makes the claim this board's own. It is stored before the first request: if an answer is lost, or the power fails before
it is stored, the same request gets the same answer again. To claim anew (after the device was deleted, or for another service)
delete `latchboard.json`."""

import binascii
import json
import os
import random
import socket
import time

FILE = "latchboard.json"
TIMEOUT_S = 10
MAX_ANSWER = 4096
FIRST_PAUSE_S, LONGEST_PAUSE_S = 2, 300  # doubled after each request without an answer
REFUSED_PAUSE_S = 900  # a person has to do something first
POLL_PAUSE_S = 30


class ClaimedConfig:
    """What `latchboard_config.py` has for one device, out of the answer to a claim."""

    def __init__(self, answer):
        self.MQTT_HOST, self.MQTT_PORT, self.MQTT_TLS_PORT = answer["mqttHost"], answer["mqttPort"], answer["mqttTlsPort"]
        self.MQTT_CLIENT_ID = self.MQTT_USERNAME = answer["mqttUsername"]
        self.MQTT_PASSWORD = answer["mqttPassword"]
        self.TOPIC_PREFIX = answer["topicPrefix"] + "/"


def get_config(url, code, hardware_id, tls=None):
    """The board's credentials; at its first start it asks for them until it gets them. `url`: of the service, with http or https.
    `tls`: an ssl.SSLContext; needed for https."""
    stored = _read()
    if "claimToken" not in stored:
        stored = {"claimToken": binascii.hexlify(os.urandom(20)).decode()}
        _write(stored)
    pause_s = FIRST_PAUSE_S
    while "mqttPassword" not in stored:
        body = {"code": code, "hardwareId": hardware_id, "claimToken": stored["claimToken"]}
        try:
            status, answer = _post(url, body, tls)
            print("latchboard: the claim:", status, answer.get("error", answer.get("status")))
        except (OSError, ValueError, IndexError) as error:
            print("latchboard: the claim:", repr(error))
            status, answer = 0, {}
        if status == 201:
            stored = answer
            _write(stored)
        elif status == 202:  # an Admin has to agree
            _wait(2 * answer.get("retryAfter", POLL_PAUSE_S))
        elif 400 <= status < 500:
            _wait(REFUSED_PAUSE_S)
        else:
            _wait(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
    return ClaimedConfig(stored)


def _wait(pause_s):
    """Half of it by chance, so that a fleet does not ask all at once."""
    time.sleep_ms(pause_s * 500 + pause_s * 500 * random.getrandbits(10) // 1024)


def _read():
    try:
        with open(FILE) as file:
            return json.load(file)
    except (OSError, ValueError):
        return {}


def _write(values):
    """The old content or the new one, also when the power fails in between."""
    with open("new.json", "w") as file:
        json.dump(values, file)
    os.rename("new.json", FILE)


def _post(url, body, tls):
    """(status, answer)"""
    scheme, _, rest = url.partition("://")
    host, _, port = rest.rstrip("/").partition(":")
    raw = stream = socket.socket()
    try:
        raw.settimeout(TIMEOUT_S)
        raw.connect(socket.getaddrinfo(host, int(port or (443 if scheme == "https" else 80)), 0, socket.SOCK_STREAM)[0][-1])
        if scheme == "https":
            if tls is None:
                raise ValueError("https needs the certificate of the authority")
            stream = tls.wrap_socket(raw, server_hostname=host)
        text = json.dumps(body).encode()
        head = f"POST /api/v1/provisioning/claim HTTP/1.0\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        _send(stream, f"{head}Content-Length: {len(text)}\r\n\r\n".encode() + text)
        return _receive(stream)
    finally:
        stream.close()
        raw.close()


def _send(stream, data):
    while data:
        data = data[stream.write(data) or len(data) :]


def _receive(stream):
    lines = [(stream.readline() or b"").decode()]
    while lines[-1].strip() and len(lines) < 40:
        lines.append((stream.readline() or b"").decode().lower())
    lengths = [int(line.split(":")[1]) for line in lines if line.startswith("content-length:")]
    if not lengths or not 0 < lengths[0] <= MAX_ANSWER:
        raise ValueError("no answer of the service")
    status, answer = int(lines[0].split(" ")[1]), json.loads(stream.read(lengths[0]) or b"")
    if not isinstance(answer, dict) or (status == 201 and "mqttPassword" not in answer):
        raise ValueError("not an answer to a claim")
    return status, answer
