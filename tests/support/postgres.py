"""A PostgreSQL of the tests' own: a cluster in a temporary folder, started when the first test asks and stopped at the end.

`LATCHBOARD_TEST_POSTGRES_URL` names another one, whose database the tests empty as they please; where tests run in several
processes, each still starts its own, for they would empty it below each other.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from support.ports import free_ports

REQUIRED = "LATCHBOARD_REQUIRE_POSTGRES"
_SERVER_S = 60


def binaries() -> Path | None:
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    if debian:
        return debian[-1].parent
    found = shutil.which("postgres")
    return Path(found).resolve().parent if found else None


def available() -> bool:
    """Whether there is one to test against. Where it is required, a missing one fails its tests, loudly."""
    return bool(os.environ.get("LATCHBOARD_TEST_POSTGRES_URL") or os.environ.get(REQUIRED) or binaries())


@functools.cache
def url() -> str:
    """Its database, as SQLAlchemy names it."""
    given = None if "PYTEST_XDIST_WORKER" in os.environ else os.environ.get("LATCHBOARD_TEST_POSTGRES_URL")
    return given or _started()


def plain_url() -> str:
    """The same as asyncpg alone names it."""
    return url().replace("+asyncpg", "")


def _started() -> str:
    found = binaries()
    assert found is not None, f"PostgreSQL is not installed and {REQUIRED} is set; `make apt` installs it"
    # It refuses to run as root.
    user = "postgres" if os.geteuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="latchboard-pg-"))
    if user:
        shutil.chown(folder, user)
    [port] = free_ports(1)

    def run(program: str, *arguments: str) -> None:
        subprocess.run(
            [found / program, "-D", folder / "data", *arguments],
            check=True,
            user=user,
            cwd=folder,
            timeout=_SERVER_S,
            stdout=subprocess.DEVNULL,
            stderr=None,
        )

    def stop() -> None:
        run("pg_ctl", "-m", "immediate", "stop")
        shutil.rmtree(folder, ignore_errors=True)

    run("initdb", "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "--no-sync")
    # Nothing here survives the tests, so nothing waits for the disk.
    options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder} -c fsync=off"
    atexit.register(stop)
    run("pg_ctl", "-o", options, "-l", str(folder / "log"), "-w", "start")
    return f"postgresql+asyncpg://postgres@127.0.0.1:{port}/postgres"
