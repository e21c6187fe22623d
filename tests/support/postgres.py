"""A PostgreSQL cluster for the tests in a temporary folder, started by the first test that needs it and stopped at the end.

`LATCHBOARD_TEST_POSTGRES_URL` names another one; its user creates and drops databases, this one included. Tests in several processes still start one
cluster each, because they would empty it under each other.
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
from support.waiting import TIMEOUT_S

REQUIRED = "LATCHBOARD_REQUIRE_POSTGRES"


def binaries() -> Path | None:
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    if debian:
        return debian[-1].parent
    found = shutil.which("postgres")
    return Path(found).resolve().parent if found else None


def available() -> bool:
    """Whether PostgreSQL is available. If it is required and missing, its tests fail."""
    return bool(os.environ.get("LATCHBOARD_TEST_POSTGRES_URL") or os.environ.get(REQUIRED) or binaries())


@functools.cache
def url() -> str:
    """The URL for SQLAlchemy."""
    given = None if "PYTEST_XDIST_WORKER" in os.environ else os.environ.get("LATCHBOARD_TEST_POSTGRES_URL")
    return given or _started()


def plain_url() -> str:
    """The URL for asyncpg."""
    return url().replace("+asyncpg", "")


def _started() -> str:
    found = binaries()
    assert found is not None, f"PostgreSQL is not installed and {REQUIRED} is set; `make apt` installs it"
    # PostgreSQL refuses to run as root.
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
            timeout=TIMEOUT_S,
            stdout=subprocess.DEVNULL,
            stderr=None,
        )

    def stop() -> None:
        run("pg_ctl", "-m", "immediate", "stop")
        shutil.rmtree(folder, ignore_errors=True)

    run("initdb", "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "--no-sync")
    # The data does not survive the tests, so no write waits for the disk, and nothing tidies up in the background.
    settings = "-c fsync=off -c full_page_writes=off -c autovacuum=off"
    options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder} {settings}"
    atexit.register(stop)
    run("pg_ctl", "-o", options, "-l", str(folder / "log"), "-w", "start")
    return f"postgresql+asyncpg://postgres@127.0.0.1:{port}/latchboard_tests"
