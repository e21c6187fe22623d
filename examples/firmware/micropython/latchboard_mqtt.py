"""A small MQTT 3.1.1 client for MicroPython: QoS 0 and 1, a will, TLS, and no wait without a limit.

`umqtt.simple` publishes at QoS 1 too, but a message that arrives meanwhile calls the program from inside the wait. Here such a
message waits in `inbox`, so that a command is never run in the middle of another one."""

import select
import socket
import struct

TIMEOUT_S = 10
MAX_INBOX = 16
MAX_PACKET = 4096

_CONNECT, _CONNACK, _PUBLISH, _PUBACK, _SUBSCRIBE, _SUBACK = 0x10, 0x20, 0x30, 0x40, 0x82, 0x90
_PINGREQ, _PINGRESP = 0xC0, 0xD0


class MqttError(Exception):
    """The connection is lost or was refused. Close the client and connect with a new one."""


class MqttClient:
    """Connected when constructed. Every method raises MqttError or OSError when the connection is lost.

    `will`: (topic, payload), QoS 1 and retained. `tls`: an ssl.SSLContext, or None for a connection that everybody on the network
    can read."""

    def __init__(self, host, port, client_id, user, password, will, keepalive_s=30, tls=None):
        self.inbox = []  # (topic, payload), oldest first
        self._last_id = 0
        self._raw = self._stream = socket.socket()
        try:
            self._open(host, port, tls)
            self._log_in(client_id, user, password, will, keepalive_s)
        except BaseException:
            self.close()
            raise

    def publish(self, topic, payload, retain=False, qos=1):
        """At QoS 1 it returns when the service has stored the message."""
        packet_id = self._next_id() if qos else 0
        body = _text(topic) + (struct.pack("!H", packet_id) if qos else b"") + _bytes(payload)
        self._send(_PUBLISH | qos << 1 | (1 if retain else 0), body)
        if qos:
            self._await(_PUBACK, packet_id)

    def subscribe(self, topic):
        packet_id = self._next_id()
        self._send(_SUBSCRIBE, struct.pack("!H", packet_id) + _text(topic) + b"\x01")
        if self._await(_SUBACK, packet_id)[2] == 0x80:
            raise MqttError(f"the subscription to {topic} was refused")

    def ping(self):
        """Call it more often than `keepalive_s`. It finds a connection that died without a word."""
        self._send(_PINGREQ, b"")
        self._await(_PINGRESP)

    def receive(self, wait_ms):
        """Read what arrives within `wait_ms` into `inbox`. True if there was something to read."""
        if not self._poll.poll(wait_ms):
            return False
        self._read_packet()
        return True

    def close(self):
        self._stream.close()
        self._raw.close()

    def _open(self, host, port, tls):
        self._raw.settimeout(TIMEOUT_S)
        self._raw.connect(socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM)[0][-1])
        if tls is not None:
            try:
                self._stream = tls.wrap_socket(self._raw, server_hostname=host)
            except ValueError as error:  # so MicroPython reports a certificate that it does not trust
                raise MqttError(f"the server's certificate: {error}") from None
        self._poll = select.poll()
        self._poll.register(self._stream, select.POLLIN)

    def _log_in(self, client_id, user, password, will, keepalive_s):
        flags = 0b11101110  # user, password, will retained at QoS 1, clean session
        body = _text("MQTT") + bytes((4, flags)) + struct.pack("!H", keepalive_s) + _text(client_id)
        self._send(_CONNECT, body + _text(will[0]) + _text(will[1]) + _text(user) + _text(password))
        code = self._await(_CONNACK)[1]
        if code:
            raise MqttError(f"the service refused the connection with code {code}; 4 or 5: wrong password, or device disabled")

    def _await(self, kind, packet_id=None):
        """The body of the packet that answers ours. Messages that come before it go to `inbox`."""
        for _ in range(4 * MAX_INBOX):
            if not self._poll.poll(TIMEOUT_S * 1000):
                break
            got, body = self._read_packet()
            if got == kind and (packet_id is None or struct.unpack_from("!H", body)[0] == packet_id):
                return body
        raise MqttError("no answer from the service")

    def _read_packet(self):
        """(kind, body); a message is confirmed and put into `inbox`."""
        first, length, shift = self._read(1)[0], 0, 0
        while True:
            digit = self._read(1)[0]
            length |= (digit & 0x7F) << shift
            shift += 7
            if digit < 0x80:
                break
            if shift > 21:
                raise MqttError("a packet with a wrong length")
        if length > MAX_PACKET:
            raise MqttError(f"a packet of {length} bytes is too large")
        body = self._read(length)
        if first & 0xF0 == _PUBLISH:
            self._take_message(first, body)
        return first & 0xF0, body

    def _take_message(self, first, body):
        if len(self.inbox) >= MAX_INBOX:
            raise MqttError("too many messages at once")  # not confirmed, so the service sends it again
        end = 2 + struct.unpack_from("!H", body)[0]
        topic, qos = body[2:end].decode(), first >> 1 & 3
        if qos:
            self._send(_PUBACK, body[end : end + 2])
            end += 2
        self.inbox.append((topic, body[end:]))

    def _read(self, count):
        data = b""
        while len(data) < count:
            part = self._stream.read(count - len(data))
            if not part:  # closed, or silent in the middle of a packet
                raise MqttError("the connection is lost")
            data += part
        return data

    def _send(self, first, body):
        head, rest = bytearray((first,)), len(body)
        while True:
            head.append(rest & 0x7F | (0x80 if rest > 0x7F else 0))
            rest >>= 7
            if not rest:
                break
        packet = memoryview(bytes(head) + body)
        while packet:
            sent = self._stream.write(packet)
            if not sent:
                raise MqttError("the connection is lost")
            packet = packet[sent:]

    def _next_id(self):
        self._last_id = self._last_id % 65535 + 1
        return self._last_id


def _bytes(text):
    return text.encode() if isinstance(text, str) else bytes(text)


def _text(text):
    data = _bytes(text)
    return struct.pack("!H", len(data)) + data
