"""Runs the service once: composes the program, serves until a signal, prints the banner, and runs the demo when asked to.

The banner says where the service is reached and how the first person signs in. A password or a one-time link is printed to a
terminal only. A file or a journal is kept and read by others, so there the text names the file that has it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

import structlog

from app.cli.first_account import FIRST_LOGIN_FILE, CreatedFirstAccount, IssuedFirstRunLink, create_first_account
from app.cli.support import FAINT, HEADING, NOTICE, STRONG, TerminalOutput
from app.config.checks import is_loopback, reachable_address
from app.config.settings import Settings
from app.runtime import start
from app.runtime.processes import WorkerProcessContext
from app.wiring import lifecycle
from app.wiring.compose import compose
from app.wiring.program import ComposedApplication

WILDCARD_HOSTS = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104 - compared, not bound
"""Addresses that mean all interfaces → the address by which this machine reaches itself."""
NAME_WIDTH = 11
"""Characters of the first column of the addresses."""
DEMO_STOP_TIMEOUT_S = 1.0

log = structlog.get_logger("service")


async def serve(
    settings: Settings, *, demo: bool = False, worker: WorkerProcessContext | None = None, first_run_token: str | None = None
) -> int:
    """Serve until a signal. `worker`: set in a worker process; they all have the same `first_run_token`. Returns the exit code.
    Raises what `startup_error_message` has a message for."""
    start.raise_limit()  # before the parts take their share of it
    program = compose(settings, worker)
    demo_tasks: list[asyncio.Task[None]] = []
    login: list[CreatedFirstAccount | IssuedFirstRunLink | None] = []

    async def prepare(program: ComposedApplication) -> None:
        login.append(await create_first_account(program, network_url(settings), make_up=demo, token=first_run_token))

    async def started(program: ComposedApplication, port: int) -> None:
        shown = settings.model_copy(update={"http_port": port})
        if worker is not None:
            worker.report_ready()
            if not worker.is_first_start:
                return
        if not demo:
            print_banner(shown, login[0])
            return
        from app.simulator.demo import HIGHLIGHTS, DemoFleet  # only the demo needs the simulator

        print_banner(shown, login[0], highlights=HIGHLIGHTS, demo=True)
        demo_fleet = DemoFleet(program=program, url=http_url(shown), password=_owner_password(settings, login[0]))
        demo_tasks.append(asyncio.create_task(demo_fleet.run(), name="demo"))
        demo_tasks[0].add_done_callback(_log_demo_failure)

    try:
        await lifecycle.run(program, prepare, started)
    finally:
        for task in demo_tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await asyncio.wait_for(task, DEMO_STOP_TIMEOUT_S)
    return 0


def _owner_password(settings: Settings, login: CreatedFirstAccount | IssuedFirstRunLink | None) -> str | None:
    """The password of a login that was made at this start."""
    if not isinstance(login, CreatedFirstAccount):
        return None
    return login.password or (settings.owner_password.get_secret_value() if settings.owner_password else None)


def _log_demo_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.error("the demo failed; the service continues", exc_info=task.exception())


def http_url(settings: Settings) -> str:
    """Where this machine reaches the dashboard."""
    return f"http://{_reachable_host(settings.http_host)}:{settings.http_port}"


def network_url(settings: Settings) -> str:
    """Where a person reaches the dashboard, perhaps from another machine."""
    return settings.public_url or f"http://{_reachable_host(reachable_address(settings.http_host))}:{settings.http_port}"


def print_banner(
    settings: Settings,
    login: CreatedFirstAccount | IssuedFirstRunLink | None,
    *,
    highlights: Sequence[str] = (),
    demo: bool = False,
    screen: TerminalOutput | None = None,
) -> None:
    """`highlights`: lines about what there is to see."""
    screen = screen or TerminalOutput()
    screen.print()
    screen.print(screen.style("Latchboard is running", HEADING) + ("  (demo)" if demo else ""))
    _print_addresses(screen, settings, http_url(settings))
    if isinstance(login, IssuedFirstRunLink):
        _print_link(screen, settings, login)
    else:
        _print_login(screen, settings, login)
    if highlights:
        screen.print()
        screen.print(screen.style("Look at:", STRONG))
        for line in highlights:
            screen.print(f"  {line}")
    screen.print()
    screen.print(screen.style("Ctrl-C stops the service.", FAINT))
    screen.print()


def _print_addresses(screen: TerminalOutput, settings: Settings, url: str) -> None:
    host = _reachable_host(settings.mqtt_host)
    _print_row(screen, "Dashboard", f"{url}/")
    _print_row(screen, "API, docs", f"{url}/docs")
    _print_row(screen, "Live feed", f"{url.replace('http', 'ws', 1)}/api/v1/ws")
    if settings.broker == "embedded":
        tls = f"   mqtts://{host}:{settings.mqtt_tls_port}" if settings.mqtt_tls_port is not None else ""
        _print_row(screen, "MQTT", f"mqtt://{host}:{settings.mqtt_port}   ws://{host}:{settings.mqtt_ws_port}/mqtt{tls}")
        if is_loopback(settings.mqtt_host):
            hint = "this machine only; set LATCHBOARD_MQTT_HOST=0.0.0.0 to accept devices from the network"
            _print_row(screen, "", screen.style(hint, FAINT))
    else:
        _print_row(screen, "MQTT", "external broker" if settings.has_broker else "none: another instance serves the devices")
    _print_row(screen, "Data", str(settings.data_dir.resolve()))


def _print_row(screen: TerminalOutput, name: str, value: str) -> None:
    screen.print(f"{name:<{NAME_WIDTH}}{value}")


def _print_link(screen: TerminalOutput, settings: Settings, link: IssuedFirstRunLink) -> None:
    screen.print()
    if not screen.is_terminal:
        screen.print(f"The one-time link that makes the first login is in {link.path.resolve()}")
        return
    screen.print(screen.style("Open this link to make your login. It works once, for a day:", NOTICE))
    screen.print(f"  {link.url}")
    if settings.public_url is None and is_loopback(settings.http_host):
        port = settings.http_port
        screen.print(screen.style(f"  On another computer, first: ssh -L {port}:127.0.0.1:{port} <this machine>", FAINT))
    screen.print(screen.style("  A try without hardware of your own: make demo", FAINT))


def _print_login(screen: TerminalOutput, settings: Settings, login: CreatedFirstAccount | None) -> None:
    file = settings.data_dir / FIRST_LOGIN_FILE
    if login is None:
        if file.exists():
            screen.print()
            screen.print(
                screen.style(f"The first login is in {file}; delete the file after you have changed the password.", FAINT)
            )
        return
    screen.print()
    if login.password is None:
        screen.print(f"Created the account of {login.email} with the password from the settings.")
    elif screen.is_terminal:
        screen.print(f"{screen.style('First login, shown only once', NOTICE)} {screen.style(f'(also in {file})', FAINT)}")
        screen.print(f"  email    {login.email}\n  password {login.password}")
    else:
        screen.print(f"The first login, {login.email} and its password, is in {file.resolve()}")


def _reachable_host(host: str) -> str:
    shown = WILDCARD_HOSTS.get(host, host)
    return f"[{shown}]" if ":" in shown and not shown.startswith("[") else shown
