"""Runs the firmware of `examples/firmware` as a device: a process whose relays are lines on standard output, and whose buttons are
lines on standard input.

async with run_example("micropython", config_block, folder) as board:
    await board.wait_for_relay("ON")
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from support.certificate import certificate
from support.ports import free_ports
from support.service import Service
from support.waiting import TIMEOUT_S

ROOT = Path(__file__).resolve().parents[2]
FIRMWARE = ROOT / "examples" / "firmware"
SKETCH = FIRMWARE / "arduino" / "latchboard_relay"
KINDS = ("arduino", "micropython")
LIGHT, BUTTON = (27, "Light"), (0, "Button", 1)
BUTTON_CHANNEL = 3
"""Of a `two_relays` board; its relays are channel 1 and 2."""


@contextmanager
def encrypted_service(folder: Path) -> Iterator[Service]:
    """A running service with MQTT over TLS as well; its `chain.pem` and `key.pem` are in `folder`."""
    chain, key = certificate(folder)
    tls = {"PORT": free_ports(1)[0], "CERTIFICATE": chain, "KEY": key}
    with Service(folder, **{f"LATCHBOARD_MQTT_TLS_{name}": value for name, value in tls.items()}) as service:
        yield service


@dataclass
class CatalogBoard:
    process: asyncio.subprocess.Process
    lines: list[str] = field(default_factory=list)
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def relay_states(self) -> list[str]:
        """The states of the first relay since the start, oldest first."""
        return self.states_of(1)

    def states_of(self, relay: int) -> list[str]:
        """Of the relay of this number: at the start they are switched off in their order."""
        lines = [line.split() for line in self.lines if line.startswith("relay ")]
        pins = list(dict.fromkeys(pin for _, pin, _ in lines))
        return [state for _, pin, state in lines if pin in pins[relay - 1 : relay]]

    async def hold_button(self, *, down: bool) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{BUTTON[0]} {'down' if down else 'up'}\n".encode())
        await self.process.stdin.drain()

    async def read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            async with self._changed:
                self.lines.append(line.decode().strip())
                self._changed.notify_all()

    async def wait_for(self, wanted: Callable[[str], bool]) -> None:
        """Wait until it has printed a line for which `wanted(line)` is true."""
        async with asyncio.timeout(TIMEOUT_S), self._changed:
            await self._changed.wait_for(lambda: any(map(wanted, self.lines)))

    async def wait_for_relay(self, *states: str, relay: int = 1) -> None:
        """Wait until the relay went through exactly these states since the start."""
        async with asyncio.timeout(TIMEOUT_S), self._changed:
            await self._changed.wait_for(lambda: self.states_of(relay) == [*states])


class NetworkCable:
    """Between a board and the service: `unplug` closes the connections and refuses new ones until `plug_in`. While `loses_answers`,
    what the service says does not arrive. `tls`: the board's side is encrypted."""

    def __init__(self, service_port: int, tls: ssl.SSLContext | None = None) -> None:
        self.port = free_ports(1)[0]
        self.loses_answers = False
        self.lost_answers = 0
        self._service_port, self._tls = service_port, tls
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def plug_in(self) -> None:
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", self.port, ssl=self._tls)

    async def unplug(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in [*self._writers]:
            writer.transport.abort()
        await self._server.wait_closed()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_reader, to_writer = await asyncio.open_connection("127.0.0.1", self._service_port)
        self._writers |= {writer, to_writer}
        await asyncio.gather(self._copy(reader, to_writer), self._copy(to_reader, writer, are_answers=True))
        self._writers -= {writer, to_writer}

    async def _copy(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, are_answers: bool = False) -> None:
        with suppress(OSError):
            while data := await source.read(4_096):
                if are_answers and self.loses_answers:
                    self.lost_answers += 1
                    break
                sink.write(data)
                await sink.drain()
        sink.close()


@asynccontextmanager
async def run_example(
    kind: str, config_block: str, folder: Path, ca: Path | None = None, *, two_relays: bool = False
) -> AsyncIterator[CatalogBoard]:
    """`config_block`: as `GET /devices/{deviceId}/config` returns it, with the password. `ca`: for TLS, PEM. `two_relays`: also LIGHT
    and BUTTON. The process is killed at the end, so that the broker publishes the will."""
    make = {"arduino": _arduino, "micropython": _micropython}[kind]
    command, environment = make(config_block, folder, ca, two_relays=two_relays)
    async with _run(command, environment) as board:
        yield board


@dataclass(frozen=True)
class ClaimingBoard:
    """A board that asks for its credentials with a provisioning code. Its flash outlives each `run`. Make it with `claiming_board`."""

    command: list[str]
    environment: dict[str, str]

    @asynccontextmanager
    async def run(self) -> AsyncIterator[CatalogBoard]:
        """From switching it on until the power is lost."""
        async with _run(self.command, self.environment) as board:
            yield board


def claiming_board(kind: str, url: str, code: str, mac: str, folder: Path, ca: Path | None = None) -> ClaimingBoard:
    """`url`: of the service. `ca`: for TLS, PEM."""
    folder.mkdir(exist_ok=True)
    flash = {"BOARD_FLASH": str(folder), "BOARD_MAC": mac}
    if kind == "micropython":
        command, environment = _micropython("", folder, ca)
        return ClaimingBoard(command, environment | flash | {"BOARD_CODE": code, "BOARD_SERVICE": url})
    write_settings(folder, ca, ("USE_PROVISIONING 0", "USE_PROVISIONING 1"), ("http://192.168.1.10:8080", url), ("lbp_...", code))
    return ClaimingBoard([str(compile_sketch(folder, "ESP32"))], flash)


@asynccontextmanager
async def run_project(kind: str, files: Mapping[str, bytes], folder: Path) -> AsyncIterator[CatalogBoard]:
    """`files`: by name, the complete firmware as the dashboard gives it. Only the board around it is replaced, and the minute between
    two messages of telemetry."""
    for name, content in files.items():
        (folder / name).write_bytes(content.replace(b"TELEMETRY_EVERY_MS 60000UL", b"TELEMETRY_EVERY_MS 1000UL"))
    command, environment = {"arduino": _arduino_project, "micropython": _micropython_project}[kind](folder)
    async with _run(command, environment) as board:
        yield board


@asynccontextmanager
async def _run(command: list[str], environment: dict[str, str]) -> AsyncIterator[CatalogBoard]:
    process = await asyncio.create_subprocess_exec(
        *command,
        env=os.environ | environment,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    board = CatalogBoard(process)
    reading = asyncio.create_task(board.read())
    try:
        yield board
    except BaseException:
        print("\n".join(board.lines[-40:]))
        raise
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await reading


def _arduino(config_block: str, folder: Path, ca: Path | None, *, two_relays: bool) -> tuple[list[str], dict[str, str]]:
    (folder / "latchboard_config.h").write_text(config_block)
    write_settings(folder, ca, two_relays=two_relays)
    return [str(compile_sketch(folder, "ESP32"))], {}


def write_settings(folder: Path, ca: Path | None, *changes: tuple[str, str], two_relays: bool = False) -> None:
    """The example's settings.h, with a second between two messages of telemetry; LIGHT and BUTTON are its own examples."""
    if two_relays:
        changes += (("MORE_RELAYS  // ", "MORE_RELAYS "), ("BUTTONS      // ", "BUTTONS "))
    settings = (SKETCH / "settings.h").read_text()
    if ca is not None:
        settings = re.sub(r"-----BEGIN.*END CERTIFICATE-----\n", ca.read_text(), settings, flags=re.DOTALL)
        settings = settings.replace("USE_TLS 0", "USE_TLS 1")
    for old, new in (("TELEMETRY_EVERY_MS 60000UL", "TELEMETRY_EVERY_MS 1000UL"), *changes):
        assert old in settings
        settings = settings.replace(old, new)
    (folder / "settings.h").write_text(settings)


def _arduino_project(folder: Path) -> tuple[list[str], dict[str, str]]:
    return [str(_compile(folder, (folder / "latchboard_relay.ino").read_text(), "ESP32"))], {}


def compile_sketch(folder: Path, core: str, main: str | None = None) -> Path:
    """The program, compiled in `folder` for Linux with the headers of `support/arduino`. The folder has the sketch's settings.h and,
    unless the board claims its credentials, latchboard_config.h. `core`: ESP32 or ESP8266. `main`: C++ to run instead of the board."""
    for name in ("json_reader.h", "claim.h"):
        (folder / name).write_text((SKETCH / name).read_text())
    return _compile(folder, (SKETCH / "latchboard_relay.ino").read_text(), core, main)


def _compile(folder: Path, text: str, core: str, main: str | None = None) -> Path:
    require_compiler()
    sketch = folder / "latchboard_relay.ino"
    sketch.write_text(_with_prototypes(text) + (main or ""))
    program, core_headers = folder / f"relay-{core}", ROOT / "tests" / "support" / "arduino"
    options = ["-std=c++17", "-Wall", "-Wextra", "-Werror", f"-D{core}", f"-I{core_headers}", "-include", "Arduino.h"]
    sources = ["-x", "c++", str(sketch), *([] if main else [str(core_headers / "main.cpp")])]
    built = subprocess.run(
        ["g++", *options, *sources, "-o", str(program), "-lssl", "-lcrypto"], capture_output=True, text=True, timeout=120
    )
    assert built.returncode == 0, built.stderr[-4_000:]
    return program


def require_compiler() -> None:
    found = shutil.which("g++") is not None and Path("/usr/include/openssl/ssl.h").exists()
    if not found and not os.environ.get("LATCHBOARD_REQUIRE_CXX"):
        pytest.skip("g++ or OpenSSL's headers (libssl-dev) are missing; set LATCHBOARD_REQUIRE_CXX=1 to make this a failure")
    assert found, "g++ or OpenSSL's headers are missing and LATCHBOARD_REQUIRE_CXX is set; `make apt` installs them"


def _with_prototypes(sketch: str) -> str:
    """As the Arduino IDE does: all functions are declared before the first one, so their types must come earlier."""
    heads = list(re.finditer(r"^(static [\w \*&]+\([^)]*\)|void \w+\(\)) \{", sketch, re.MULTILINE))
    declarations = "".join(f"{head[1]};\n" for head in heads)
    return sketch[: heads[0].start()] + declarations + sketch[heads[0].start() :]


def _micropython(
    config_block: str, folder: Path, ca: Path | None, *, two_relays: bool = False
) -> tuple[list[str], dict[str, str]]:
    (folder / "latchboard_config.py").write_text(config_block)
    program = [micropython(), str(ROOT / "tests" / "support" / "micropython_board.py"), "1"]
    if ca is not None:
        der = folder / "ca.der"
        der.write_bytes(x509.load_pem_x509_certificate(ca.read_bytes()).public_bytes(Encoding.DER))
        program.append(str(der))
    more = {"BOARD_RELAYS": repr([LIGHT]), "BOARD_BUTTONS": repr([BUTTON])} if two_relays else {}
    return program, {"MICROPYPATH": f"{folder}:{FIRMWARE / 'micropython'}:.frozen", **more}


def _micropython_project(folder: Path) -> tuple[list[str], dict[str, str]]:
    """Its `main.py` needs a board's pins and Wi-Fi, so `micropython_board.py` stands for it."""
    ca = [str(folder / "ca.der")] if (folder / "ca.der").exists() else []
    program = [micropython(), str(ROOT / "tests" / "support" / "micropython_board.py"), "1", *ca]
    return program, {"MICROPYPATH": f"{folder}:.frozen"}


def micropython() -> str:
    """MicroPython's Unix port; skips the test without it."""
    beside = Path(sys.executable).parent / "micropython"
    found = str(beside) if beside.exists() else shutil.which("micropython")
    if found is None and not os.environ.get("LATCHBOARD_REQUIRE_MICROPYTHON"):
        pytest.skip("MicroPython's Unix port is not installed; set LATCHBOARD_REQUIRE_MICROPYTHON=1 to make this a failure")
    assert found is not None, "MicroPython is not installed and LATCHBOARD_REQUIRE_MICROPYTHON is set"
    return found
