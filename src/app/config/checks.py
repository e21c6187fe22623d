"""What single settings may be: types and checks of values. A check raises ValueError, which says what is allowed.

Beside them, the address under which devices on the network reach a server of this machine. A microcontroller asks only DNS: it
knows neither the hosts file nor the search domain that make the bare host name work on this machine. So the default in device
credentials is an address.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Callable
from typing import Annotated, Any
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, SecretStr

from adapters.http.core.callers import parse_networks
from domain.kernel.caller import Role
from domain.kernel.errors import ValidationFailed

LOOPBACK = ("localhost", "127.0.0.1", "::1")
_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,252}")


def checked(check: Callable[[str], object]) -> AfterValidator:
    """For a text that `check` accepts, or a secret one."""

    def validate(value: Any) -> Any:
        check(value.get_secret_value() if isinstance(value, SecretStr) else value)
        return value

    return AfterValidator(validate)


def domain_rule(check: Callable[[str], str]) -> Callable[[str], None]:
    """A rule of the domain as the check of a setting."""

    def check_setting(value: str) -> None:
        try:
            check(value)
        except ValidationFailed as error:
            raise ValueError(error.details[0].message.rstrip(".")) from None

    return check_setting


def uppercase(value: Any) -> Any:
    return value.upper() if isinstance(value, str) else value


def parse_server_url(value: str, schemes: tuple[str, ...], fault: str) -> SplitResult:
    """A URL with a host and without a path. `fault` is what the ValueError says."""
    try:
        url = urlsplit(value)
        if url.scheme in schemes and url.hostname and url.port != 0 and not url.path.strip("/"):
            return url
    except ValueError:
        pass  # it says less than `fault`
    raise ValueError(fault)


def public_url(value: str) -> str:
    """The URL without a slash at its end."""
    fault = "must be a URL without a path, such as https://latchboard.example.com"
    url = parse_server_url(value, ("http", "https"), fault)
    if url.query or url.fragment or url.username:
        raise ValueError(fault)
    return value.rstrip("/")


def check_mqtt_url(value: str, allowed: str) -> None:
    fault = f"{allowed} a URL such as mqtt://user:password@host:1883; write @ : / % # in the password percent-encoded"
    parse_server_url(value, ("mqtt", "mqtts"), fault)


Networks = Annotated[str, checked(parse_networks)]
"""Addresses and networks, comma-separated."""
PublicUrl = Annotated[str, AfterValidator(public_url)]
"""A URL without a path."""


def check_broker(value: str) -> None:
    if value not in ("embedded", "none"):
        check_mqtt_url(value, "must be `embedded`, `none`, or")


def check_homeassistant(value: str) -> None:
    check_mqtt_url(value, "must be")


def check_host(value: str) -> None:
    """The name appears in configurations of five languages, so only characters of host names and addresses are allowed."""
    if not _HOST.fullmatch(value) and not is_ip_address(value):
        raise ValueError("must be a host name or an address such as mqtt.example.com: no scheme, port or brackets")


def check_database_url(value: str) -> None:
    if not value.startswith(("sqlite+aiosqlite:///", "postgresql+asyncpg://")):
        raise ValueError("must begin with sqlite+aiosqlite:/// or postgresql+asyncpg://")


def check_issuer(value: str) -> None:
    fault = "must be an https URL such as https://sso.example.com (http only on this machine), without query"
    try:
        url = urlsplit(value)
        is_secure = url.scheme == "https" or (url.scheme == "http" and url.hostname in LOOPBACK)
    except ValueError:
        raise ValueError(fault) from None
    if not is_secure or not url.hostname or url.query or url.fragment or url.username:
        raise ValueError(fault)


def check_scopes(value: str) -> None:
    if "openid" not in value.split():
        raise ValueError("must contain openid, such as openid profile email")


def parse_role_map(text: str) -> dict[str, Role]:
    """Value of the claim → role. Raises ValueError."""
    found: dict[str, Role] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        value, _, role = entry.rpartition("=")
        if not value.strip() or role.strip() not in [known.value for known in Role]:
            raise ValueError("must be pairs such as plant-admins=Admin, plant=Member; roles: Owner, Admin, Member, Viewer")
        found[value.strip()] = Role(role.strip())
    return found


_ADVICE = "must be the nodes of a NATS cluster, such as nats://user:password@nats-1:4222,nats-2:4222,nats-3:4222"


def split_servers(text: str) -> list[str]:
    """`nats://user:password@a:4222,b:4222` names two servers with the same scheme and credentials."""
    first, *others = [part.strip() for part in text.split(",")]
    prefix = first[: first.rfind("@") + 1] or first[: first.find("//") + 2]
    return [first, *(other if "://" in other else prefix + other for other in others)]


def check_servers(value: str) -> None:
    for server in split_servers(value):
        parse_server_url(server, ("nats", "tls"), _ADVICE)


def check_monitors(value: str) -> None:
    for address in filter(None, value.split(",")):
        parse_server_url(address.strip(), ("http", "https"), "must be addresses such as http://nats-1:8222,http://nats-2:8222")


def check_clickhouse_url(value: str) -> None:
    from adapters.clickhouse.reading_store import ClickHouseConnectionConfig  # imports httpx

    ClickHouseConnectionConfig.parse(value)


def check_low_ports(value: str) -> None:
    for port in filter(None, (part.strip() for part in value.split(","))):
        if not port.isdigit() or not 0 < int(port) < 1_024:
            raise ValueError("must be a list of ports from 1 to 1023, such as 81,591")


def is_ip_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return "%" not in text  # a zone id names an interface of one machine, and may contain any character


_LOOPBACK = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}
_OUTSIDE = {socket.AF_INET: "192.0.2.1", socket.AF_INET6: "2001:db8::1"}
"""Addresses for documentation (RFC 5737, RFC 3849): nobody's network has them, so the default route leads there."""


def reachable_address(listening: str) -> str:
    """Where devices reach a server that listens on `listening`, an address or a host name.

    A server on all interfaces is reached at the address of the interface with the default route, IPv4 first. Without such a route
    the result is the loopback address."""
    if not _is_wildcard(listening):
        return listening
    families = [socket.AF_INET, socket.AF_INET6] if ":" in listening else [socket.AF_INET]
    found = (_outgoing_address(family) for family in families)
    return next(filter(None, found), _LOOPBACK[families[-1]])


def is_loopback(listening: str) -> bool:
    """Whether only this machine reaches a server that listens on `listening`, an address or a host name."""
    try:
        return ipaddress.ip_address(listening).is_loopback
    except ValueError:
        return listening == "localhost"


def _is_wildcard(listening: str) -> bool:
    try:
        return ipaddress.ip_address(listening).is_unspecified
    except ValueError:
        return listening == ""


def _outgoing_address(family: socket.AddressFamily) -> str | None:
    """To connect a datagram socket sends nothing: the system only chooses route and source address."""
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((_OUTSIDE[family], 9))
            address: str = probe.getsockname()[0]
    except OSError:
        return None
    return None if ipaddress.ip_address(address).is_unspecified else address
