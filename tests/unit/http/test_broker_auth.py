"""What the brokers' questions are answered when the database is away, and from where they may be asked."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest
from quart import Quart

from adapters.http.broker_auth import BrokerAuthRequestGuard, broker_access_blueprint
from domain.devices.broker_auth import ExternalBrokerAuthService
from domain.kernel.errors import Unavailable

LOGIN = {"username": "dev_00000000000000000000", "password": "x", "clientid": "dev_00000000000000000000"}


class AwayDatabase:
    def read(self) -> Any:
        raise Unavailable("The database does not answer.")


async def test_a_database_that_is_away_allows_nothing_and_refuses_nothing_where_a_broker_would_drop_what_it_has_confirmed() -> (
    None
):
    """Mosquitto confirms what its plugin refuses to a device of MQTT 3.1.1; at an error it closes the connection."""
    access = ExternalBrokerAuthService(uow=AwayDatabase(), vault=None, service=None)  # type: ignore[arg-type]
    app = Quart(__name__)
    app.register_blueprint(
        broker_access_blueprint(access, BrokerAuthRequestGuard(secret=None, networks=[ipaddress.ip_network("127.0.0.1")]))
    )
    client = app.test_client()
    topic = f"devices/{LOGIN['username']}/telemetry"
    for path, fields in (("user", {}), ("acl", {"topic": topic, "acc": "2"})):
        for mode in ("", "?mode=text"):
            answer = await client.post(
                f"/broker/mosquitto/{path}{mode}", json=LOGIN | fields, scope_base={"client": ("127.0.0.1", 1)}
            )
            assert answer.status_code == 503
            assert await answer.get_data(as_text=True) != "ok"
    answer = await client.post("/broker/emqx/auth", json=LOGIN, scope_base={"client": ("127.0.0.1", 1)})
    assert await answer.get_json() == {"result": "deny"}


@pytest.mark.parametrize(
    ("address", "was_forwarded", "admitted"),
    [
        ("10.1.0.7", False, True),
        ("::ffff:10.1.0.7", False, True),
        ("fd00::7%eth0", False, True),
        ("10.2.0.7", False, False),
        ("::ffff:10.2.0.7", False, False),
        ("", False, False),
        ("10.1.0.7", True, False),
    ],
)
def test_a_network_admits_its_addresses_however_they_are_written(address: str, was_forwarded: bool, admitted: bool) -> None:
    guard = BrokerAuthRequestGuard(secret=None, networks=[ipaddress.ip_network("10.1.0.0/24"), ipaddress.ip_network("fd00::/64")])
    assert guard.admits(None, address, was_forwarded=was_forwarded) is admitted
