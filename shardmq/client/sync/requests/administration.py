"""Virtual hosts, users, permissions: part of Connection."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from shardmq.client.core.requests import administration
from shardmq.client.core.requests.request import Request

T = TypeVar("T")


class AdministrationRequests(ABC):
    """The verbs of administrators: part of a connection.

    What changes something is for users with the tag administrator; others get AccessRefused.
    """

    @abstractmethod
    def _ask(self, request: Request[T]) -> T:
        """Ask, and wait for the answer."""

    def status(self) -> dict[str, Any]:
        """The state of every process and queue, as `shardmq status` shows it.

        Users without the tag administrator or monitoring are told of no processes, of the queues in their virtual
        hosts, and as "own" how many connections, channels and consumers they have. A broker on several hosts has
        "groups", too: who leads which term of each shard and of the coordinator, and which hosts are in sync.
        """
        return self._ask(administration.status())

    def topology(self, noun: str) -> list[dict[str, Any]]:
        """List what exists of one kind, a table for each.

        Args:
            noun: "exchanges", "queues", "bindings", "topics", "readable-topics" (those that the user may read, and
                streams) or "transactions" (undecided ones) of this virtual host; "vhosts", "users", "permissions",
                "topic-permissions", "policies", "connections", "channels" or "consumers": those the user may see.
        """
        return self._ask(administration.topology(noun))

    def vhost_put(self, vhost: str, description: str = "", tags: Sequence[str] = ()) -> None:
        """Make a virtual host, or change what is said of it."""
        self._ask(administration.vhost_put(vhost, description, tags))

    def vhost_delete(self, vhost: str) -> None:
        """Remove a virtual host with everything in it; its connections are closed."""
        self._ask(administration.vhost_delete(vhost))

    def user_put(
        self,
        user: str,
        password: str | None = None,
        password_hash: str | None = None,
        tags: Sequence[str] | None = None,
    ) -> None:
        """Make a user, or change one: what is None stays.

        Args:
            user: the name.
            password: as it is typed.
            password_hash: instead of a password, as `topology("users")` and RabbitMQ's definitions have it.
            tags: administrator, monitoring, management, impersonator.
        """
        self._ask(administration.user_put(user, password, password_hash, tags))

    def user_delete(self, user: str) -> None:
        """Remove a user with all permissions; its connections are closed."""
        self._ask(administration.user_delete(user))

    def permission_put(self, user: str, vhost: str, configure: str, write: str, read: str) -> None:
        """Set what a user may do in a virtual host, as regular expressions; "" allows nothing, ".*" everything."""
        self._ask(administration.permission_put(user, vhost, configure, write, read))

    def permission_delete(self, user: str, vhost: str) -> None:
        """Take a user's permissions in a virtual host away; nothing happens when there are none."""
        self._ask(administration.permission_delete(user, vhost))

    def limits_put(self, noun: str, name: str, limits: Mapping[str, int | None]) -> None:
        """Set limits; None lifts one.

        Args:
            noun: "vhost" (max-connections, max-queues) or "user" (max-connections, max-channels).
            name: which.
            limits: by name.
        """
        self._ask(administration.limits_put(noun, name, limits))

    def connection_expel(self, connection: str, reason: str = "") -> None:
        """Close a client's connection, as `topology("connections")` names it. A client that recovers comes again."""
        self._ask(administration.connection_expel(connection, reason))

    def backup_begin(self, directory: str, bytes_per_second: int = 100_000_000) -> None:
        """Have the broker copy its stores, while it goes on. Returns once it is settled what is in the backup.

        Args:
            directory: an absolute path on the hosts of the broker's processes; there must be nothing in it.
            bytes_per_second: at most, of all shards together.
        """
        self._ask(administration.backup_begin(directory, bytes_per_second))

    def backup_look(self) -> dict[str, Any]:
        """How far the last backup is: its `state` ("copying", "done", "failed"), and bytes of each store."""
        return self._ask(administration.backup_look())

    def watermarks_put(self, memory_bytes: int | None = None, disk_free_bytes: int | None = None) -> None:
        """Set the watermarks above which publishers are blocked, until the broker's processes end; None leaves one.

        Args:
            memory_bytes: of each shard and each gateway.
            disk_free_bytes: what must be free on the disk of each shard.
        """
        self._ask(administration.watermarks_put(memory_bytes, disk_free_bytes))

    def host_drain(self, host: str, is_draining: bool = True) -> None:
        """Have everything that a host of a broker on several has moved to others, while the broker goes on.

        Returns once that is noted; `status()` tells how far it is.

        Args:
            host: its name; one that is away can be drained as well.
            is_draining: False to let it have replicas again.
        """
        self._ask(administration.host_drain(host, is_draining))

    def shard_transfer(self, shard: str, host: str) -> None:
        """Have a shard led by another host that is in sync. Returns once that is noted.

        Args:
            shard: as `shard-0`, or `coordinator`.
            host: its name.
        """
        self._ask(administration.shard_transfer(shard, host))

    def shard_move(self, shard: str, source: str, target: str) -> None:
        """Have a replica of a shard on another host; there is never one fewer. Returns once that is noted.

        Args:
            shard: as `shard-0`, or `coordinator`.
            source: the host that has one.
            target: the host that is to have it.
        """
        self._ask(administration.shard_move(shard, source, target))

    def tracing_put(self, vhost: str, sample: float = 1.0) -> None:
        """Copy what is published and delivered in a virtual host to its exchange `amq.rabbitmq.trace`.

        That goes on until it is switched off, or the broker's processes end
        (https://www.rabbitmq.com/docs/firehose).

        Args:
            vhost: the virtual host.
            sample: which part of the messages is copied, from 0 (none: off) to 1 (all).
        """
        self._ask(administration.tracing_put(vhost, sample))

    def definitions_export(self) -> dict[str, Any]:
        """All that is durable, in the shape of RabbitMQ's definitions."""
        return self._ask(administration.definitions_export())

    def definitions_import(self, definitions: Mapping[str, Any]) -> dict[str, Any]:
        """Make or set what is in definitions of RabbitMQ's shape; topics, exchanges and queues that are there stay so.

        Returns:
            `{"imported": {noun: count}, "skipped": [sentence, …]}`.
        """
        return self._ask(administration.definitions_import(definitions))
