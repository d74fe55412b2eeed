"""The requests of administrators, and of those who look at everything, as values."""

from collections.abc import Mapping, Sequence
from typing import Any

from shardmq.client.api.results import converted
from shardmq.client.core.requests.request import Request, nothing
from shardmq.client.core.validation import check_names, table, words
from shardmq.protocol.native.operations.administration import (
    BackupBegin,
    BackupLook,
    ConnectionExpel,
    DefinitionsExport,
    DefinitionsImport,
    HostDrain,
    LimitsPut,
    PermissionDelete,
    PermissionPut,
    ShardMove,
    ShardTransfer,
    TracingPut,
    UserDelete,
    UserPut,
    VhostDelete,
    VhostPut,
    WatermarksPut,
)
from shardmq.protocol.native.operations.connection import StatusGet
from shardmq.protocol.native.operations.topology import TopologyList

Table = dict[str, Any]


def _table(result: object) -> Table:
    return converted(result, Table, "a request for a table")


def _tables(result: object) -> list[Table]:
    return converted(result, list[Table], "a request for a list of tables")


def status() -> Request[Table]:
    """Ask for the state of every process and queue."""
    return Request("asking for the status", _table, StatusGet(0, 0))


def topology(noun: str) -> Request[list[Table]]:
    """List what exists of one kind."""
    check_names(noun=noun)
    return Request(f"listing {noun}", _tables, TopologyList(0, 0, noun))


def vhost_put(vhost: str, description: str, tags: Sequence[str]) -> Request[None]:
    """Make a virtual host, or change it."""
    check_names(vhost=vhost)
    return Request(f"putting virtual host '{vhost}'", nothing, VhostPut(0, 0, vhost, description, words("tags", tags)))


def vhost_delete(vhost: str) -> Request[None]:
    """Remove a virtual host."""
    check_names(vhost=vhost)
    return Request(f"deleting virtual host '{vhost}'", nothing, VhostDelete(0, 0, vhost))


def user_put(user: str, password: str | None, password_hash: str | None, tags: Sequence[str] | None) -> Request[None]:
    """Make a user, or change it."""
    check_names(user=user)
    wanted = None if tags is None else words("tags", tags)
    return Request(f"putting user '{user}'", nothing, UserPut(0, 0, user, password, password_hash, wanted))


def user_delete(user: str) -> Request[None]:
    """Remove a user."""
    check_names(user=user)
    return Request(f"deleting user '{user}'", nothing, UserDelete(0, 0, user))


def permission_put(user: str, vhost: str, configure: str, write: str, read: str) -> Request[None]:
    """Set a user's permissions in a virtual host."""
    check_names(user=user, vhost=vhost)
    return Request(
        f"putting the permissions of user '{user}' in virtual host '{vhost}'",
        nothing,
        PermissionPut(0, 0, user, vhost, configure, write, read),
    )


def permission_delete(user: str, vhost: str) -> Request[None]:
    """Take all of a user's permissions in a virtual host away."""
    check_names(user=user, vhost=vhost)
    return Request(
        f"deleting the permissions of user '{user}' in virtual host '{vhost}'",
        nothing,
        PermissionDelete(0, 0, user, vhost),
    )


def limits_put(noun: str, name: str, limits: Mapping[str, int | None]) -> Request[None]:
    """Set or lift limits."""
    check_names(noun=noun, name=name)
    return Request(f"putting limits of {noun} '{name}'", nothing, LimitsPut(0, 0, noun, name, table("limits", limits)))


def backup_begin(directory: str, bytes_per_second: int) -> Request[None]:
    """Begin a copy of the stores."""
    return Request(f"beginning a backup in {directory}", nothing, BackupBegin(0, 0, directory, bytes_per_second))


def backup_look() -> Request[Table]:
    """Ask how far the last backup is."""
    return Request("asking for the state of the backup", _table, BackupLook(0, 0))


def connection_expel(connection: str, reason: str) -> Request[None]:
    """Close somebody's connection."""
    check_names(connection=connection)
    return Request(f"closing connection '{connection}'", nothing, ConnectionExpel(0, 0, connection, reason))


def watermarks_put(memory_bytes: int | None, disk_free_bytes: int | None) -> Request[None]:
    """Set watermarks of all processes."""
    return Request("setting watermarks", nothing, WatermarksPut(0, 0, memory_bytes, disk_free_bytes))


def host_drain(host: str, is_draining: bool) -> Request[None]:
    """Have everything that a host has moved to others, or let it have replicas again."""
    check_names(host=host)
    return Request(f"draining host '{host}'", nothing, HostDrain(0, 0, host, is_draining))


def shard_transfer(shard: str, host: str) -> Request[None]:
    """Have a shard led by another host."""
    check_names(shard=shard, host=host)
    return Request(f"transferring {shard} to '{host}'", nothing, ShardTransfer(0, 0, shard, host))


def shard_move(shard: str, source: str, target: str) -> Request[None]:
    """Have a replica of a shard on another host."""
    check_names(shard=shard, source=source, target=target)
    return Request(f"moving {shard} from '{source}' to '{target}'", nothing, ShardMove(0, 0, shard, source, target))


def tracing_put(vhost: str, sample: float) -> Request[None]:
    """Trace a part of a virtual host's messages."""
    check_names(vhost=vhost)
    return Request(f"changing tracing of virtual host '{vhost}'", nothing, TracingPut(0, 0, vhost, float(sample)))


def definitions_export() -> Request[Table]:
    """Export everything durable."""
    return Request("exporting definitions", _table, DefinitionsExport(0, 0))


def definitions_import(definitions: Mapping[str, Any]) -> Request[Table]:
    """Make what definitions name."""
    return Request("importing definitions", _table, DefinitionsImport(0, 0, table("definitions", definitions)))
