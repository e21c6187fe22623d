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

import asyncpg

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


class Cluster:
    """A private PostgreSQL server whose data are below `folder`, at a port that was free."""

    def __init__(self, folder: Path) -> None:
        found = binaries()
        assert found is not None, f"PostgreSQL is not installed and {REQUIRED} is set; `make apt` installs it"
        self._binaries = found
        self._folder = folder
        self._user = "postgres" if os.geteuid() == 0 else None  # PostgreSQL refuses to run as root
        [self._port] = free_ports(1)

    def url(self, database: str) -> str:
        """The URL for SQLAlchemy."""
        return f"postgresql+asyncpg://postgres@127.0.0.1:{self._port}/{database}"

    def create(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        if self._user:
            shutil.chown(self._folder, self._user)
        self._run("initdb", "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "--no-sync")

    def start(self, *settings: str) -> None:
        """`settings`: `name=value`, in place of the server's defaults."""
        given = " ".join(f"-c {each}" for each in settings)
        options = f"-p {self._port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={self._folder} {given}"
        self._run("pg_ctl", "-o", options, "-l", str(self._folder / "log"), "-w", "start")

    def stop(self, mode: str) -> None:
        """`mode`: `fast` keeps all that was stored, `immediate` leaves it to the next start."""
        self._run("pg_ctl", "-m", mode, "-w", "stop")

    async def create_database(self, name: str) -> None:
        connection = await asyncpg.connect(self.url("postgres").replace("+asyncpg", ""))
        try:
            await connection.execute(f"CREATE DATABASE {name}")
        finally:
            await connection.close()

    def copy_standby(self) -> Path:
        """A standby as it is now: it gets nothing of what the server commits from now on."""
        folder = Path(tempfile.mkdtemp(prefix="standby-", dir=self._folder))
        folder.rmdir()  # its user makes it
        given = ("-h", "127.0.0.1", "-p", str(self._port), "-U", "postgres", "-X", "fetch", "-c", "fast", "--no-sync")
        self._run("pg_basebackup", *given, data=folder)
        (folder / "standby.signal").touch()
        return folder

    def fail_over(self, standby: Path) -> None:
        """The server dies, and the standby takes over at its address."""
        self.stop("immediate")
        self.take_over(standby)

    def take_over(self, standby: Path) -> None:
        """The standby serves at the address of the server, which has stopped."""
        shutil.rmtree(self._folder / "dead", ignore_errors=True)
        (self._folder / "data").rename(self._folder / "dead")
        standby.rename(self._folder / "data")
        self.start()
        self._run("pg_ctl", "-w", "promote")

    def _run(self, program: str, *arguments: str, data: Path | None = None) -> None:
        subprocess.run(
            [self._binaries / program, "-D", data or self._folder / "data", *arguments],
            check=True,
            user=self._user,
            cwd=self._folder,
            timeout=TIMEOUT_S,
            stdout=subprocess.DEVNULL,
            stderr=None,
        )


def _started() -> str:
    folder = Path(tempfile.mkdtemp(prefix="latchboard-pg-"))
    cluster = Cluster(folder)
    cluster.create()

    def stop() -> None:
        cluster.stop("immediate")
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(stop)
    # The data does not survive the tests, so no write waits for the disk, and nothing tidies up in the background.
    cluster.start("fsync=off", "full_page_writes=off", "autovacuum=off")
    return cluster.url("latchboard_tests")
