"""All that exists at one version, as lists: what the bus carries and a store has read."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol

from shardmq.topology.entities import (
    Binding,
    Exchange,
    OpenTransaction,
    Parameter,
    Permission,
    Policy,
    Queue,
    Topic,
    TopicPermission,
    User,
    Vhost,
)


class TopologyFields(Protocol):
    """All that exists, as lists: what a snapshot on the bus carries."""

    @property
    def version(self) -> int:
        """The number of applied commands."""

    @property
    def vhosts(self) -> Sequence[Vhost]:
        """All virtual hosts."""

    @property
    def exchanges(self) -> Sequence[Exchange]:
        """All declared exchanges."""

    @property
    def queues(self) -> Sequence[Queue]:
        """All queues."""

    @property
    def bindings(self) -> Sequence[Binding]:
        """All bindings."""

    @property
    def users(self) -> Sequence[User]:
        """All users."""

    @property
    def permissions(self) -> Sequence[Permission]:
        """All permissions."""

    @property
    def transactions(self) -> Sequence[OpenTransaction]:
        """All undecided transactions."""

    @property
    def topics(self) -> Sequence[Topic]:
        """All topics."""

    @property
    def policies(self) -> Sequence[Policy]:
        """All policies and operator policies."""

    @property
    def topic_permissions(self) -> Sequence[TopicPermission]:
        """All topic permissions."""

    @property
    def tracing(self) -> Mapping[str, float]:
        """The part of messages that is traced, by virtual host."""

    @property
    def parameters(self) -> Sequence[Parameter]:
        """All parameters of components."""


class TopologySnapshot(NamedTuple):
    """All that exists at one version, as lists."""

    version: int
    vhosts: list[Vhost]
    exchanges: list[Exchange]
    queues: list[Queue]
    bindings: list[Binding]
    users: list[User]
    permissions: list[Permission]
    transactions: Sequence[OpenTransaction] = ()
    topics: Sequence[Topic] = ()
    policies: Sequence[Policy] = ()
    topic_permissions: Sequence[TopicPermission] = ()
    tracing: Mapping[str, float] = MappingProxyType({})
    parameters: Sequence[Parameter] = ()
