"""Settings of a cluster: several instances that share the devices (docs/how-to/cluster.md)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, SecretStr

from app.config.checked_setting_types import checked
from app.config.connection_limit_settings import ConnectionLimitSettings
from app.config.url_checks import parse_server_url
from domain.partitions.model import MAX_PARTITIONS

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
