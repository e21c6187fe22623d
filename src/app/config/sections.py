"""Settings of a cluster: several instances that share the devices (docs/how-to/cluster.md).

Settings of the sign-in with OpenID Connect; docs/how-to/openid-connect.md explains them.

Settings of how many connections strangers may hold; docs/how-to/operate.md explains the defaults.

Settings of the questions that external brokers may ask about devices (docs/how-to/other-brokers.md).

The setting of notifications by Telegram; docs/how-to/notifications.md explains it.

Settings of where telemetry is kept, and for how long (docs/how-to/clickhouse.md).

Settings of where webhooks may deliver; docs/reference/webhooks.md explains them.

Settings of several worker processes on one machine (docs/how-to/operate.md, "Worker processes").
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings

from adapters.http.core.callers import Network, parse_networks
from app.config.checks import Networks, PublicUrl, checked, parse_server_url
from domain.kernel.caller import Role
from domain.oidc.policy import OidcFactorTrust
from domain.partitions.model import MAX_PARTITIONS

LOOPBACK = ("localhost", "127.0.0.1", "::1")


def _check_issuer(value: str) -> None:
    fault = "must be an https URL such as https://sso.example.com (http only on this machine), without query"
    try:
        url = urlsplit(value)
        is_secure = url.scheme == "https" or (url.scheme == "http" and url.hostname in LOOPBACK)
    except ValueError:
        raise ValueError(fault) from None
    if not is_secure or not url.hostname or url.query or url.fragment or url.username:
        raise ValueError(fault)


def _check_scopes(value: str) -> None:
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


class OidcSettings(BaseSettings):
    oidc_issuer: Annotated[str, checked(_check_issuer)] | None = Field(
        default=None, description="The provider's issuer, https://sso.example.com/realms/plant"
    )
    oidc_client_id: str | None = None
    oidc_client_secret: SecretStr | None = Field(default=None, description="None for a public client.")
    oidc_name: str | None = Field(default=None, max_length=40, description="On the button; default: the issuer's host.")
    oidc_scopes: Annotated[str, checked(_check_scopes)] = Field(
        default="openid profile email", pattern=r"^[\x21\x23-\x5B\x5D-\x7E ]{1,500}$"
    )
    oidc_role_claim: str = Field(default="", max_length=200, description="Claim with groups or roles, such as groups.")
    oidc_role_map: Annotated[str, checked(parse_role_map)] = Field(
        default="", description="value=Role, comma-separated: plant-admins=Admin, plant=Member"
    )
    oidc_default_role: Role | None = Field(default=None, description="Without a mapped value; default: the sign-in is refused.")
    oidc_auto_create: bool = Field(default=False, description="Add unknown people of the provider as members.")
    oidc_account: str | None = Field(default=None, description="Their account, acc_…; default: the only one.")
    oidc_trust_email: bool = Field(default=False, description="Also of a provider that sends no email_verified.")
    oidc_second_factor: OidcFactorTrust = Field(
        OidcFactorTrust.NEVER, description="When the provider's sign-in stands for the second factor: never, always or claimed."
    )
    oidc_acr_values: str = Field(default="", max_length=500, description="Asked of the provider, and accepted when claimed.")
    oidc_session_hours: int = Field(default=24, ge=1, le=720, description="Until the provider must confirm the user again.")
    oidc_sign_out: bool = Field(default=False, description="Sign out of the provider too.")
    oidc_ca_file: Path | None = Field(default=None, description="More trusted certificates for the provider (PEM).")

    def check_oidc(self) -> None:
        """Raises ValueError for settings that do not fit each other."""
        if (self.oidc_issuer is None) != (self.oidc_client_id is None):
            raise ValueError("set both LATCHBOARD_OIDC_ISSUER and LATCHBOARD_OIDC_CLIENT_ID, or neither")
        if bool(self.oidc_role_claim) != bool(self.oidc_role_map):
            raise ValueError("set both LATCHBOARD_OIDC_ROLE_CLAIM and LATCHBOARD_OIDC_ROLE_MAP, or neither")
        if self.oidc_auto_create and not self.oidc_role_claim and self.oidc_default_role is None:
            raise ValueError("LATCHBOARD_OIDC_AUTO_CREATE needs LATCHBOARD_OIDC_DEFAULT_ROLE or LATCHBOARD_OIDC_ROLE_CLAIM")


Count = Annotated[int, Field(ge=8, le=1_000_000)]


class ConnectionLimitSettings(BaseSettings):
    """Without a value, a limit follows from how many files the process may open (`app.runtime.start`)."""

    http_connections: Count | None = Field(default=None, description="Open HTTP connections, live feed included.")
    http_connections_per_address: Count | None = Field(default=None, description="Of these, of one client address.")
    feed_pending: Count = Field(default=500, description="Feed connections that have not sent credentials yet.")
    feed_pending_per_address: Count = Field(default=50, description="Of these, of one client address.")
    mqtt_connections: Count | None = Field(default=None, description="Open MQTT connections.")
    mqtt_pending: Count | None = Field(default=None, description="Of these, before their CONNECT is accepted.")
    mqtt_pending_per_address: Count | None = Field(default=None, description="Of these, of one client address.")
    ban_after: int = Field(
        default=50, ge=0, le=1_000_000, description="Failed connections in a row before an address is banned; 0: never."
    )
    ban_max_seconds: int = Field(default=600, ge=1, le=86_400, description="The longest ban; the first one lasts a second.")
    unlimited_addresses: Networks = Field(
        default="127.0.0.0/8, ::1",
        description="Addresses without limits of their own and without bans, comma-separated; trusted proxies are added.",
    )

    def unlimited_networks(self, trusted_proxies: str) -> tuple[Network, ...]:
        return parse_networks(self.unlimited_addresses) + parse_networks(trusted_proxies)


_ADVICE = "must be the nodes of a NATS cluster, such as nats://user:password@nats-1:4222,nats-2:4222,nats-3:4222"


def split_servers(text: str) -> list[str]:
    """`nats://user:password@a:4222,b:4222` names two servers with the same scheme and credentials."""
    first, *others = [part.strip() for part in text.split(",")]
    prefix = first[: first.rfind("@") + 1] or first[: first.find("//") + 2]
    return [first, *(other if "://" in other else prefix + other for other in others)]


def _check_servers(value: str) -> None:
    for server in split_servers(value):
        parse_server_url(server, ("nats", "tls"), _ADVICE)


def _check_monitors(value: str) -> None:
    for address in filter(None, value.split(",")):
        parse_server_url(address.strip(), ("http", "https"), "must be addresses such as http://nats-1:8222,http://nats-2:8222")


class ClusterSettings(ConnectionLimitSettings):
    cluster: Annotated[SecretStr, checked(_check_servers)] | None = Field(
        default=None, description="Nodes of NATS, nats://a:4222,b:4222,c:4222: share the devices with other instances."
    )
    cluster_partitions: int = Field(
        default=64, ge=1, le=MAX_PARTITIONS, description="Parts of the fleet; fixed by the cluster's first start."
    )
    cluster_monitor: Annotated[str, checked(_check_monitors)] = Field(
        default="",
        description="Monitoring addresses of all NATS nodes, http://a:8222,http://b:8222,…, for the check of the start.",
    )
    cluster_log_mib: int = Field(default=1_024, ge=1, le=1_048_576, description="Bound of each partition's log.")
    cluster_unsafe: bool = Field(
        default=False, description="Start although the log may lose confirmed messages; for development only."
    )

    @property
    def cluster_servers(self) -> list[str]:
        return [] if self.cluster is None else split_servers(self.cluster.get_secret_value())

    @property
    def cluster_monitors(self) -> list[str]:
        return [address.strip().rstrip("/") for address in self.cluster_monitor.split(",") if address.strip()]

    def check_cluster(self, *, database_url: str, broker: str, engine: str, mosquitto_files: bool) -> None:
        """`mosquitto_files`: whether credentials are written to files of Mosquitto. Raises ValueError."""
        if self.cluster is None:
            return
        if not database_url.startswith("postgresql"):
            raise ValueError("LATCHBOARD_CLUSTER needs PostgreSQL; set LATCHBOARD_DATABASE_URL")
        if broker == "none" or engine != "native":
            raise ValueError("LATCHBOARD_CLUSTER needs a broker and the native engine; unset LATCHBOARD_BROKER and _ENGINE")
        if mosquitto_files:
            raise ValueError(
                "LATCHBOARD_CLUSTER cannot write the files of Mosquitto; unset LATCHBOARD_MOSQUITTO_*, and let the broker ask "
                "over HTTP (docs/how-to/other-brokers.md)"
            )


class ExternalBrokerAuthSettings(BaseSettings):
    broker_auth_secret: SecretStr | None = Field(
        default=None, min_length=16, description="An external broker that shows it may ask about logins and topics of devices."
    )
    broker_auth_networks: Networks = Field(
        default="", description="Addresses from which a broker may ask without it, comma-separated: 127.0.0.1,10.1.0.0/24."
    )

    @property
    def answers_brokers(self) -> bool:
        return self.broker_auth_secret is not None or bool(self.broker_auth_networks.strip())


class TelegramServerSettings(BaseSettings):
    telegram_url: PublicUrl = Field(
        default="https://api.telegram.org", description="Server of the Telegram Bot API, or of another one that speaks it."
    )


def _check_clickhouse_url(value: str) -> None:
    from adapters.clickhouse.reading_store import ClickHouseConnectionConfig  # imports httpx

    ClickHouseConnectionConfig.parse(value)


class TelemetryStorageSettings(BaseSettings):
    readings_days: int = Field(default=30, ge=1, le=3_650, description="Days to keep raw telemetry.")
    rollups_days: int = Field(default=365, ge=1, le=3_650, description="Days to keep hourly roll-ups of telemetry.")
    clickhouse_url: Annotated[SecretStr, checked(_check_clickhouse_url)] | None = Field(
        default=None,
        description="https://user:password@host:8443/database: ClickHouse, which gets the raw telemetry that is older.",
    )
    clickhouse_days: int = Field(default=365, ge=1, le=3_650, description="Days to keep raw telemetry in ClickHouse.")

    def check_days(self) -> None:
        """Raises ValueError."""
        if self.rollups_days < self.readings_days:
            raise ValueError("LATCHBOARD_ROLLUPS_DAYS must be at least LATCHBOARD_READINGS_DAYS; raise it or lower the other")
        if self.clickhouse_url is not None and not self.readings_days < self.clickhouse_days <= self.rollups_days:
            raise ValueError(
                "LATCHBOARD_CLICKHOUSE_DAYS must be more than LATCHBOARD_READINGS_DAYS and at most LATCHBOARD_ROLLUPS_DAYS; "
                "change one of them"
            )


def _check_low_ports(value: str) -> None:
    for port in filter(None, (part.strip() for part in value.split(","))):
        if not port.isdigit() or not 0 < int(port) < 1_024:
            raise ValueError("must be a list of ports from 1 to 1023, such as 81,591")


class WebhookDestinationSettings(BaseSettings):
    webhook_allow_private: bool = Field(
        default=False, description="Allow http and private addresses for webhooks; for development only."
    )
    webhook_networks: Networks = Field(
        default="", description="Networks of receivers beside public addresses, by http too, comma-separated: 192.168.1.0/24."
    )
    webhook_low_ports: Annotated[str, checked(_check_low_ports)] = Field(
        default="", description="Webhook ports below 1024 besides 80 and 443, comma-separated."
    )
    webhook_ca_file: Path | None = Field(default=None, description="More trusted certificates for webhooks (PEM).")

    def allowed_webhook_networks(self) -> tuple[Network, ...]:
        return parse_networks(self.webhook_networks)

    def allowed_low_ports(self) -> frozenset[int]:
        return frozenset(int(port) for port in self.webhook_low_ports.split(",") if port.strip())


MAX_WORKERS = 64


class WorkerProcessSettings(ConnectionLimitSettings):
    workers: int = Field(
        default=1, ge=1, le=MAX_WORKERS, description="Processes that share the HTTP port; more than 1 needs PostgreSQL."
    )
    worker_port: int | None = Field(
        default=None,
        ge=1,
        le=65_535 - MAX_WORKERS,
        description="Worker 1 alone answers here too, worker 2 on the next port: for metrics.",
    )

    def check_workers(self, *, database_url: str, in_cluster: bool) -> None:
        """Raises ValueError."""
        if self.workers == 1:
            return
        if not database_url.startswith("postgresql"):
            raise ValueError(
                f"{self.workers} workers need PostgreSQL: only one process may write to an SQLite file. Set "
                "LATCHBOARD_DATABASE_URL (`latchboard move-to` moves this installation), or leave LATCHBOARD_WORKERS at 1"
            )
        if in_cluster:
            raise ValueError(
                "LATCHBOARD_WORKERS and LATCHBOARD_CLUSTER exclude each other: an instance of a cluster has MQTT ports of its "
                "own. Start one instance per core instead, or unset LATCHBOARD_CLUSTER"
            )
        if sys.platform != "linux":
            raise ValueError(
                "more than one worker needs Linux, which spreads connections over processes. Leave LATCHBOARD_WORKERS at 1"
            )
