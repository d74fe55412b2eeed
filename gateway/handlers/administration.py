"""Requests for administrators: virtual hosts, users, permissions, limits, closing connections.

Users without the tag "administrator" are refused (403). The coordinator checks names and limits.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from shardmq.bus.coordinator_link import Reply
from shardmq.definitions.export import export, stored_hash
from shardmq.definitions.importer import NOUNS, ImportPlan, ImportStep, plain_passwords
from shardmq.errors import AccessRefused, InvalidRequest, NotFound, RequestError, request_error
from shardmq.gateway.handlers.client_lists import gather_rows
from shardmq.gateway.handlers.replies import CommandSequence, done
from shardmq.gateway.session.channel import Channel
from shardmq.gateway.session.client import Client
from shardmq.gateway.state.gateway import HostOperations
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
from shardmq.topology.commands import (
    CloseConnection,
    DeletePermission,
    DeleteUser,
    DeleteVhost,
    PutLimits,
    PutPermission,
    PutUser,
    PutVhost,
    SetTracing,
    SetWatermarks,
)
from shardmq.topology.passwords import hash_password

EXPELLED: Final = "closed by an administrator"


def check_administrator(client: Client, what: str) -> None:
    """Make sure that the user has the tag "administrator".

    Args:
        client: whose user.
        what: the request, such as "changing users".

    Raises:
        AccessRefused: the user does not have it.
    """
    if not client.is_administrator:
        raise AccessRefused(f"{what} is refused for user '{client.user}': it takes the tag 'administrator'")


def vhost_put(channel: Channel, operation: VhostPut, reply: Reply) -> None:
    """Create or change a virtual host."""
    check_administrator(channel.client, "changing virtual hosts")
    channel.client.perform(PutVhost(operation.vhost, operation.description, tuple(operation.tags)), done(reply))


def vhost_delete(channel: Channel, operation: VhostDelete, reply: Reply) -> None:
    """Delete a virtual host."""
    check_administrator(channel.client, "deleting virtual hosts")
    channel.client.perform(DeleteVhost(operation.vhost), done(reply))


def user_put(channel: Channel, operation: UserPut, reply: Reply) -> None:
    """Create or change a user. Hashing a password takes 50 ms, on another thread.

    Raises:
        AccessRefused: not for this user.
        InvalidRequest: a password and a hash.
    """
    client = channel.client
    check_administrator(client, "changing users")
    tags = None if operation.tags is None else tuple(operation.tags)
    if operation.password is None:
        stored = None if operation.password_hash is None else stored_hash(operation.password_hash)
        client.perform(PutUser("", operation.user, stored, tags), done(reply))
        return
    if operation.password_hash is not None:
        raise InvalidRequest(f"user '{operation.user}' is given a password and a hash of one; give one of them")
    if not operation.password:
        raise InvalidRequest(
            f"user '{operation.user}' is given an empty password; give one, or the hash '' to let nobody in by it"
        )
    _hash_all(
        {operation.user: operation.password},
        lambda hashes: client.perform(PutUser("", operation.user, hashes[operation.user], tags), done(reply)),
    )


def user_delete(channel: Channel, operation: UserDelete, reply: Reply) -> None:
    """Delete a user."""
    check_administrator(channel.client, "deleting users")
    channel.client.perform(DeleteUser("", operation.user), done(reply))


def permission_put(channel: Channel, operation: PermissionPut, reply: Reply) -> None:
    """Set a user's permissions in a virtual host."""
    check_administrator(channel.client, "changing permissions")
    command = PutPermission(operation.vhost, operation.user, operation.configure, operation.write, operation.read)
    channel.client.perform(command, done(reply))


def permission_delete(channel: Channel, operation: PermissionDelete, reply: Reply) -> None:
    """Delete a user's permissions in a virtual host."""
    check_administrator(channel.client, "changing permissions")
    channel.client.perform(DeletePermission(operation.vhost, operation.user), done(reply))


def limits_put(channel: Channel, operation: LimitsPut, reply: Reply) -> None:
    """Limit a virtual host or a user.

    Raises:
        AccessRefused: not for this user.
        InvalidRequest: neither of them.
    """
    check_administrator(channel.client, "changing limits")
    if operation.noun == "vhost":
        command = PutLimits(operation.name, "", operation.limits)
    elif operation.noun == "user":
        command = PutLimits("", operation.name, operation.limits)
    else:
        raise InvalidRequest(f"a '{operation.noun}' has no limits; name a vhost or a user")
    channel.client.perform(command, done(reply))


def backup_begin(channel: Channel, operation: BackupBegin, reply: Reply) -> None:
    """Begin to copy the broker's stores."""
    check_administrator(channel.client, "taking backups")
    channel.client.state.coordinator.begin_backup(operation.directory, operation.bytes_per_second, done(reply))


def backup_look(channel: Channel, _operation: BackupLook, reply: Reply) -> None:
    """Say how far the backup is."""
    check_administrator(channel.client, "looking at backups")
    channel.client.state.coordinator.look_backup(reply)


def connection_expel(channel: Channel, operation: ConnectionExpel, reply: Reply) -> None:
    """Close a connection: anybody their own, an administrator everybody's."""
    client = channel.client

    def look(rows: list[dict[str, Any]]) -> None:
        found = [row for row in rows if row["name"] == operation.connection]
        is_own = bool(found) and all(row["user"] == client.user for row in found)
        if not is_own and not client.is_administrator:  # whether others' are there is not said
            what = f"closing connection '{operation.connection}'"
            reason = "it is none of theirs, and takes the tag 'administrator'"
            reply(AccessRefused(f"{what} is refused for user '{client.user}': {reason}"))
        elif found:
            client.perform(CloseConnection("", operation.connection, operation.reason or EXPELLED), done(reply))
        else:
            reply(NotFound(f"no connection '{operation.connection}'; see the list of connections"))

    gather_rows(client.state, "connections", look)


def watermarks_put(channel: Channel, operation: WatermarksPut, reply: Reply) -> None:
    """Set watermarks of all processes."""
    check_administrator(channel.client, "changing watermarks")
    channel.client.perform(SetWatermarks("", operation.memory_bytes, operation.disk_free_bytes), done(reply))


def host_drain(channel: Channel, operation: HostDrain, reply: Reply) -> None:
    """Have everything that a host has moved to others, or let it have replicas again."""
    check_administrator(channel.client, "draining hosts")
    _host_operations(channel).drain(operation.host, operation.is_draining, reply)


def shard_transfer(channel: Channel, operation: ShardTransfer, reply: Reply) -> None:
    """Have a shard led by another host."""
    check_administrator(channel.client, "transferring shards")
    _host_operations(channel).transfer(operation.shard, operation.host, reply)


def shard_move(channel: Channel, operation: ShardMove, reply: Reply) -> None:
    """Have a replica of a shard on another host."""
    check_administrator(channel.client, "moving shards")
    _host_operations(channel).move(operation.shard, operation.source, operation.target, reply)


def _host_operations(channel: Channel) -> HostOperations:
    """What hosts can be asked for.

    Raises:
        InvalidRequest: there is one host.
    """
    operations = channel.client.state.host_operations
    if operations is None:
        raise InvalidRequest("this broker is on one host; only one on several has hosts and replicas to be moved")
    return operations


def tracing_put(channel: Channel, operation: TracingPut, reply: Reply) -> None:
    """Change which part of a virtual host's messages is traced."""
    check_administrator(channel.client, "changing tracing")
    channel.client.perform(SetTracing(operation.vhost, operation.sample), done(reply))


def definitions_export(channel: Channel, _operation: DefinitionsExport, reply: Reply) -> None:
    """Export all that is durable, in RabbitMQ's shape."""
    check_administrator(channel.client, "exporting definitions")
    reply(export(channel.client.state.topology))


def definitions_import(channel: Channel, operation: DefinitionsImport, reply: Reply) -> None:
    """Create or set what definitions name, one kind after the other; end at the first thing that is refused.

    Raises:
        AccessRefused: not for this user.
        InvalidRequest: the definitions make no sense; nothing was created.
    """
    client = channel.client
    check_administrator(client, "importing definitions")
    topology = client.state.topology

    def begin(hashes: dict[str, str]) -> None:
        try:
            plan = ImportPlan(operation.definitions, topology, client.vhost, hashes)
        except RequestError as fault:
            reply(fault)
            return

        def end(refused: tuple[ImportStep, RequestError] | None, made: Counter[str]) -> None:
            if refused is None:
                reply({"imported": {noun: made[noun] for noun in NOUNS}, "skipped": plan.skipped})
                return
            step, fault = refused
            done_before = ", ".join(f"{made[noun]} {noun}" for noun in NOUNS if made[noun]) or "nothing"
            reply(request_error(fault.code, f"{step.thing}: {fault.text}; made until then: {done_before}"))

        CommandSequence(client.perform, plan.stages, end).begin()

    _hash_all(plain_passwords(operation.definitions), begin)


def _hash_all(passwords: dict[str, str], then: Callable[[dict[str, str]], Any]) -> None:
    """Call `then` with the hashes of passwords, by user. Each takes 50 ms, on another thread."""
    if not passwords:
        then({})
        return
    hashing = asyncio.get_running_loop().run_in_executor(
        None, lambda: {user: hash_password(password) for user, password in passwords.items()}
    )
    hashing.add_done_callback(lambda hashed: then(hashed.result()))


REQUESTS: Final[dict[type[Any], Any]] = {
    VhostPut: vhost_put,
    VhostDelete: vhost_delete,
    UserPut: user_put,
    UserDelete: user_delete,
    PermissionPut: permission_put,
    PermissionDelete: permission_delete,
    LimitsPut: limits_put,
    ConnectionExpel: connection_expel,
    BackupBegin: backup_begin,
    BackupLook: backup_look,
    WatermarksPut: watermarks_put,
    HostDrain: host_drain,
    ShardTransfer: shard_transfer,
    ShardMove: shard_move,
    TracingPut: tracing_put,
    DefinitionsExport: definitions_export,
    DefinitionsImport: definitions_import,
}
