"""`latchboard doctor` checks everything that a start needs; it creates nothing and upgrades nothing. `latchboard health` asks the
running service whether it works, for the health checks of containers and balancers.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx

from adapters.clock import SystemClock
from adapters.crypto.certificates import expiry
from adapters.mqtt.mosquitto import MosquittoHealthMonitor, as_text
from adapters.storage.sql import SqlDatabase
from adapters.storage.sql.migrations import HEAD
from app.cli.serve import http_url
from app.config.settings import Settings
from app.runtime.start import InstanceLock, StartupError, find_clock_problem, require_database
from app.wiring.adapters import broker_port, create_disk_space, load_engine, load_key_ring
from domain.kernel.clock import DAY_MS, SECOND_MS, from_iso, to_iso
from domain.kernel.errors import DomainError, Unavailable

EARLIEST_PLAUSIBLE_MS = from_iso("2026-01-01T00:00:00Z")
"""A clock before this date is wrong: Latchboard did not exist yet."""
CONNECT_TIMEOUT_S = 3.0
RESPONSE_TIMEOUT_S = 4.0
CERTIFICATE_WARNING_DAYS = 30


@dataclass(frozen=True, slots=True)
class DoctorCheckResult:
    name: str
    passed: bool
    message: str
    is_warning: bool = False
    """It passed, and somebody should act."""


class DoctorCheckWarningError(Exception):
    """The check passed, and the message says what somebody should do."""


async def run_checks(settings: Settings) -> list[DoctorCheckResult]:
    running = await _is_service_running(settings)
    checks: list[tuple[str, Callable[[], Awaitable[str]]]] = [
        ("data directory", lambda: _check_data_dir(settings)),
        ("disk space", lambda: _check_disk_space(settings)),
        ("secret keys", lambda: _check_keys(settings)),
        ("database", lambda: _check_database(settings)),
        ("engine", lambda: _check_engine(settings)),
        ("broker", lambda: _check_broker(settings, running)),
        ("cluster", lambda: _check_cluster(settings)),
        ("MQTT certificate", lambda: _check_certificate(settings)),
        ("HTTP port", lambda: _check_http_port(settings, running)),
        ("clock", lambda: _check_clock(settings)),
    ]
    return [await _run_check(name, check) for name, check in checks]


async def _run_check(name: str, check: Callable[[], Awaitable[str]]) -> DoctorCheckResult:
    try:
        return DoctorCheckResult(name, True, await check())
    except DoctorCheckWarningError as warning:
        return DoctorCheckResult(name, True, str(warning), is_warning=True)
    except (DomainError, StartupError) as error:
        return DoctorCheckResult(name, False, str(error))
    except Exception as error:
        return DoctorCheckResult(name, False, f"{type(error).__name__}: {error}")


async def _is_service_running(settings: Settings) -> bool:
    """Whether the service of these settings runs. An SQLite file is locked by its service, so that a service with other settings
    that uses the same ports is not taken for it; with PostgreSQL, the answer at the HTTP address decides."""
    database = SqlDatabase(settings.effective_database_url, pool_size=1).file
    return await _is_answering(settings) if database is None else InstanceLock(database).is_held()


async def _is_answering(settings: Settings) -> bool:
    try:
        async with httpx.AsyncClient(timeout=CONNECT_TIMEOUT_S) as client:
            return (await client.get(f"{http_url(settings)}/healthz")).status_code == 200
    except httpx.HTTPError:
        return False


async def _check_data_dir(settings: Settings) -> str:
    folder = settings.data_dir.resolve()
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if not existing.is_dir() or not os.access(existing, os.R_OK | os.W_OK | os.X_OK):
        raise StartupError(
            f"{existing} is not a directory that this user may write to. Give the service's user write access to it, "
            "or set LATCHBOARD_DATA_DIR to another directory."
        )
    return f"{folder} is writable" if existing == folder else f"{folder} does not exist; a start creates it"


async def _check_disk_space(settings: Settings) -> str:
    disk = create_disk_space(settings, SqlDatabase(settings.effective_database_url, pool_size=1).file)
    if warning := disk.warning():
        raise DoctorCheckWarningError(warning)
    free_bytes = disk.free_bytes()
    return "unknown" if free_bytes is None else f"{free_bytes / 1024**3:.1f} GiB free"


async def _check_keys(settings: Settings) -> str:
    if settings.secret_keys is None and not (settings.data_dir / "secret_keys").exists():
        database = SqlDatabase(settings.effective_database_url, pool_size=1).file
        if database is not None and database.exists():
            raise StartupError(
                f"{settings.data_dir / 'secret_keys'} is missing, but there is a database. Restore it from a backup: a start "
                "creates a new one, which decrypts none of the stored MQTT passwords and webhook secrets."
            )
        return "a start creates them"
    return f"{len(load_key_ring(settings).keys)} keys in the ring"


async def _check_database(settings: Settings) -> str:
    database = SqlDatabase(settings.effective_database_url, pool_size=1)
    require_database(settings, database.file)
    try:
        revision = await database.revision()
        if revision is None:
            return "empty; a start creates the schema"
        if revision != HEAD:
            raise DoctorCheckWarningError(f"schema revision {revision}; a start upgrades it to {HEAD}. Make a backup first.")
        await database.start()
        await database.check()
        return f"answers; schema revision {revision} is the newest"
    finally:
        await database.stop()


async def _check_engine(settings: Settings) -> str:
    name = load_engine(settings.engine).name
    return "native, built from these sources" if name == "native" else "reference: correct and slow"


async def _check_broker(settings: Settings, running: bool) -> str:
    if not settings.has_broker:
        return "none: another instance serves the devices"
    if settings.broker != "embedded":
        url = urlsplit(settings.broker)
        host, port = url.hostname or "127.0.0.1", broker_port(url)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                _, writer = await asyncio.open_connection(host, port)
        except OSError as error:
            reason = error.strerror or f"no answer within {CONNECT_TIMEOUT_S:.0f} s"
            raise StartupError(
                f"{host}:{port} accepts no connections: {reason}. Start the broker, or correct LATCHBOARD_BROKER."
            ) from None
        writer.close()
        await asyncio.to_thread(_check_mosquitto_config, settings)
        return f"external, {host}:{port} accepts connections"
    if running:
        return "embedded, in the running service"
    ports = {"LATCHBOARD_MQTT_PORT": settings.mqtt_port, "LATCHBOARD_MQTT_WS_PORT": settings.mqtt_ws_port}
    if settings.mqtt_tls_port is not None:
        ports["LATCHBOARD_MQTT_TLS_PORT"] = settings.mqtt_tls_port
    for name, port in ports.items():
        _require_free_port(settings.mqtt_host, port, name)
    return f"embedded, ports {', '.join(str(port) for port in ports.values())} are free"


async def _check_cluster(settings: Settings) -> str:
    if settings.cluster is None:
        return "off: one instance holds the devices"
    from adapters.stream.jetstream import find_unsafe, reserved_text

    problems = await find_unsafe(settings.cluster_monitors)
    if problems and not settings.cluster_unsafe:
        raise StartupError(" ".join(problems))
    if problems:
        raise DoctorCheckWarningError(" ".join(problems))
    room = reserved_text(settings.cluster_partitions, settings.cluster_log_mib * 1024 * 1024)
    return f"{len(settings.cluster_monitors)} NATS nodes keep what they confirm; {room}"


async def _check_certificate(settings: Settings) -> str:
    path = settings.mqtt_tls_certificate
    if path is None:
        return "none; without TLS, MQTT passwords can be read on the network (latchboard tls init makes a certificate)"
    try:
        expires = expiry(path.read_bytes())
    except (OSError, ValueError) as error:
        raise StartupError(f"{path} cannot be used: {error}. Correct LATCHBOARD_MQTT_TLS_CERTIFICATE.") from None
    days_left = (expires.timestamp() * SECOND_MS - SystemClock().now_ms()) / DAY_MS
    text = f"{path} expires on {expires:%Y-%m-%d}"
    if days_left <= 0:
        raise StartupError(f"{text}: devices refuse it. Renew it, with `latchboard tls init` if that made it, and restart.")
    if days_left < CERTIFICATE_WARNING_DAYS:
        raise DoctorCheckWarningError(f"{text}. Renew it, with `latchboard tls init` if that made it, and restart.")
    return text


def _check_mosquitto_config(settings: Settings) -> None:
    """Look at the configuration of a Mosquitto on this machine. Raises DoctorCheckWarningError."""
    watch = MosquittoHealthMonitor(pid_file=settings.mosquitto_pid_file)
    watch.check_config()
    if warning := as_text(watch.warnings()):
        raise DoctorCheckWarningError(warning)


async def _check_http_port(settings: Settings, running: bool) -> str:
    if running:
        return f"the service runs at {http_url(settings)}"
    _require_free_port(settings.http_host, settings.http_port, "LATCHBOARD_HTTP_PORT")
    return f"{settings.http_host}:{settings.http_port} is free"


async def _check_clock(settings: Settings) -> str:
    now_ms = SystemClock().now_ms()
    if now_ms < EARLIEST_PLAUSIBLE_MS:
        raise StartupError(
            f"The clock shows {to_iso(now_ms)}, which is wrong. Schedules and tokens need the right time: set up NTP."
        )
    problem = await _find_clock_problem(settings)
    if problem and settings.cluster is not None and not settings.cluster_unsafe:
        raise StartupError(problem)
    if problem:
        raise DoctorCheckWarningError(problem)
    return to_iso(now_ms)


async def _find_clock_problem(settings: Settings) -> str | None:
    """None also if the database does not answer: another check says so."""
    database = SqlDatabase(settings.effective_database_url, pool_size=1)
    try:
        return await find_clock_problem(database, SystemClock())
    except Unavailable:
        return None
    finally:
        await database.stop()


def _require_free_port(host: str, port: int, variable: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise StartupError(
                f"{host}:{port}: {error.strerror}. Stop the program that uses it (perhaps another Latchboard), "
                f"or set {variable} to another port."
            ) from None


def check_readiness(settings: Settings) -> str:
    """The text of `/readyz`. Raises StartupError when the service does not answer or is not ready."""
    url = f"{http_url(settings)}/readyz"
    try:
        response = httpx.get(url, timeout=RESPONSE_TIMEOUT_S, trust_env=False)
    except httpx.HTTPError as error:
        raise StartupError(f"{url} does not answer: {error or type(error).__name__}") from None
    if response.status_code != 200:
        raise StartupError(f"{url} answers {response.status_code}: {response.text.strip()}")
    return response.text.strip()
