"""The first account at a start: a link or a login, and who can read it."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from adapters.clock import SystemClock
from adapters.crypto.passwords import Argon2PasswordHasher
from adapters.randomness import RandomIdAndSecretGenerator
from app.cli import serve
from app.cli.first_account import DEFAULT_EMAIL, FIRST_LOGIN_FILE, CreatedFirstAccount, IssuedFirstRunLink, create_first_account
from app.cli.support import TerminalOutput
from app.config.settings import Settings
from app.runtime.start import FIRST_RUN_FILE
from domain.team.operator import OperatorService
from support.memory_storage.unit_of_work import MemoryUnitOfWork

URL = "http://127.0.0.1:8080"


@pytest.fixture
def hasher() -> Iterator[Argon2PasswordHasher]:
    weak = Argon2PasswordHasher(memory_kib=8, passes=1)
    yield weak
    weak.close()


def fake_program(hasher: Argon2PasswordHasher, settings: Settings) -> Any:
    """The parts of the program that create the first account, with in-memory storage."""
    ids = RandomIdAndSecretGenerator()
    operator = OperatorService(uow=MemoryUnitOfWork(), clock=SystemClock(), ids=ids, hasher=hasher)
    sign_in = SimpleNamespace(first_run=SimpleNamespace(issue_token=lambda _shared: "t0ken"))
    services = SimpleNamespace(operator=operator, sign_in=sign_in)
    return SimpleNamespace(settings=settings, adapters=SimpleNamespace(ids=ids, key_ring=None), services=services)


def banner_text(settings: Settings, login: CreatedFirstAccount | IssuedFirstRunLink | None, *, terminal: bool = True) -> str:
    file = io.StringIO()
    serve.print_banner(settings, login, screen=TerminalOutput(file, is_terminal=terminal))
    return file.getvalue()


async def test_an_empty_installation_gets_a_link_in_a_file_that_only_its_owner_can_read_and_no_account(
    tmp_path: Path, hasher: Argon2PasswordHasher
) -> None:
    program = fake_program(hasher, Settings(data_dir=tmp_path))
    link = await create_first_account(program, URL)
    assert isinstance(link, IssuedFirstRunLink)
    assert (link.url, link.path) == (f"{URL}/#/first-run/t0ken", tmp_path / FIRST_RUN_FILE)
    assert link.path.stat().st_mode & 0o777 == 0o600
    assert link.path.read_text().startswith(f"{link.url}\n")
    assert "t0ken" not in repr(link)
    assert await program.services.operator.has_no_accounts()


async def test_the_demo_gets_a_login_in_a_file_that_only_its_owner_can_read(tmp_path: Path, hasher: Argon2PasswordHasher) -> None:
    settings = Settings(data_dir=tmp_path)
    login = await create_first_account(fake_program(hasher, settings), URL, make_up=True)
    assert isinstance(login, CreatedFirstAccount)
    assert login.password is not None
    assert (login.email, len(login.password)) == (DEFAULT_EMAIL, 20)
    file = tmp_path / FIRST_LOGIN_FILE
    assert file.stat().st_mode & 0o777 == 0o600
    assert login.password in file.read_text()
    assert login.password not in repr(login)


async def test_a_password_from_the_settings_is_neither_printed_nor_written_to_a_file(
    tmp_path: Path, hasher: Argon2PasswordHasher
) -> None:
    settings = Settings(data_dir=tmp_path, owner_email="ada@example.com", owner_password="long enough")
    login = await create_first_account(fake_program(hasher, settings), URL)
    assert login == CreatedFirstAccount("ada@example.com", None)
    assert list(tmp_path.iterdir()) == []
    assert "long enough" not in banner_text(settings, login)


async def test_the_second_start_creates_no_account(tmp_path: Path, hasher: Argon2PasswordHasher) -> None:
    running = fake_program(hasher, Settings(data_dir=tmp_path))
    assert await create_first_account(running, URL) is not None
    assert await create_first_account(running, URL, make_up=True) is not None
    assert await create_first_account(running, URL) is None
    assert not (tmp_path / FIRST_RUN_FILE).exists()


def test_the_link_is_shown_on_a_terminal_and_only_its_file_is_named_in_a_log(tmp_path: Path) -> None:
    link = IssuedFirstRunLink(f"{URL}/#/first-run/t0ken", tmp_path / FIRST_RUN_FILE)
    assert link.url in banner_text(Settings(data_dir=tmp_path), link)
    output = banner_text(Settings(data_dir=tmp_path), link, terminal=False)
    assert "t0ken" not in output
    assert str(tmp_path / FIRST_RUN_FILE) in output


def test_the_link_names_the_address_at_which_a_person_reaches_the_dashboard() -> None:
    assert serve.network_url(Settings()) == URL
    assert serve.network_url(Settings(http_host="192.168.1.10", http_port=80)) == "http://192.168.1.10:80"
    assert serve.network_url(Settings(public_url="https://latchboard.example.com/")) == "https://latchboard.example.com"


def test_the_banner_shows_every_address_and_the_first_login(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, http_port=8081, mqtt_port=1884, mqtt_ws_port=8084)
    output = banner_text(settings, CreatedFirstAccount("ada@example.com", "secret", tmp_path / FIRST_LOGIN_FILE))
    for part in (
        "http://127.0.0.1:8081/docs",
        "ws://127.0.0.1:8081/api/v1/ws",
        "mqtt://127.0.0.1:1884",
        "ws://127.0.0.1:8084/mqtt",
    ):
        assert part in output
    assert "password secret" in output


def test_a_log_gets_the_place_of_the_first_password_and_not_the_password(tmp_path: Path) -> None:
    output = banner_text(Settings(data_dir=tmp_path), CreatedFirstAccount("ada@example.com", "s3cr3t", tmp_path), terminal=False)
    assert "s3cr3t" not in output
    assert f"The first login, ada@example.com and its password, is in {tmp_path / FIRST_LOGIN_FILE}" in output


def test_a_wildcard_address_is_shown_as_the_loopback_address() -> None:
    assert serve.http_url(Settings(http_host="0.0.0.0")) == "http://127.0.0.1:8080"
    assert serve.http_url(Settings(http_host="::")) == "http://[::1]:8080"
