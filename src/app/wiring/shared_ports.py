"""What almost every service of the domain is given; unpacked into its constructor."""

from __future__ import annotations

from typing import TypedDict

from adapters.storage.sql.unit_of_work import SqlUnitOfWork
from app.wiring.adapters import ServiceAdapters
from domain.kernel.clock import Clock
from domain.kernel.ids import IdAndSecretGenerator
from domain.sign_in.ports import TokenHasher


class SharedPorts(TypedDict):
    uow: SqlUnitOfWork
    clock: Clock


class EntityCreationPorts(SharedPorts):
    """For services that create something with an id."""

    ids: IdAndSecretGenerator


class SecretIssuerPorts(EntityCreationPorts):
    """For services that hand out a secret of which only the digest is stored."""

    digest: TokenHasher


def shared_ports(uow: SqlUnitOfWork, adapters: ServiceAdapters) -> SharedPorts:
    return {"uow": uow, "clock": adapters.clock}


def creating_ports(uow: SqlUnitOfWork, adapters: ServiceAdapters) -> EntityCreationPorts:
    return {**shared_ports(uow, adapters), "ids": adapters.ids}


def secret_ports(uow: SqlUnitOfWork, adapters: ServiceAdapters) -> SecretIssuerPorts:
    return {**creating_ports(uow, adapters), "digest": adapters.digest}
