"""Virtual hosts, users, permissions, limits, definitions, backups.

Users without the tag "administrator" are refused (403).
"""

from typing import Any

from shardmq.protocol.native.operations.fields import AfterLoss, ClientRequest, Name


class VhostPut(ClientRequest, frozen=True):
    """Create a virtual host, or change its description and tags. The answer is Ok."""

    after_loss = AfterLoss.ASK_AGAIN

    vhost: Name
    description: str = ""
    tags: list[str] = []


class VhostDelete(ClientRequest, frozen=True):
    """Delete a virtual host with everything in it. The answer is Ok."""

    after_loss = AfterLoss.ASK_AGAIN
    is_done_where_missing = True

    vhost: Name


class UserPut(ClientRequest, frozen=True):
    """Create or change a user; nil changes nothing. The answer is Ok.

    Instead of a password there may be a `password_hash`, as in TopologyList of users and in RabbitMQ's definitions.
    """

    after_loss = AfterLoss.ASK_AGAIN

    user: Name
    password: str | None = None
    password_hash: str | None = None
    tags: list[str] | None = None


class UserDelete(ClientRequest, frozen=True):
    """Delete a user with all permissions. The answer is Ok."""

    after_loss = AfterLoss.ASK_AGAIN
    is_done_where_missing = True

    user: Name


class PermissionPut(ClientRequest, frozen=True):
    """Set what a user may do in a virtual host, as regular expressions. The answer is Ok."""

    after_loss = AfterLoss.ASK_AGAIN

    user: Name
    vhost: Name
    configure: str
    write: str
    read: str


class PermissionDelete(ClientRequest, frozen=True):
    """Delete a user's permission in a virtual host. The answer is Ok, also if there was none."""

    after_loss = AfterLoss.ASK_AGAIN

    user: Name
    vhost: Name


class LimitsPut(ClientRequest, frozen=True):
    """Limit a "vhost" (max-connections, max-queues) or a "user" (max-connections, max-channels). The answer is Ok.

    nil removes a limit.
    """

    after_loss = AfterLoss.ASK_AGAIN

    noun: Name
    name: Name
    limits: dict[str, int | None]


class ConnectionExpel(ClientRequest, frozen=True):
    """Close a client's connection, named as in TopologyList of connections. The answer is Ok."""

    connection: Name
    reason: str = ""


class BackupBegin(ClientRequest, frozen=True):
    """Have the running broker copy its stores into a new folder, on the hosts where they are.

    The answer is Ok, once it is settled what is in the backup. BackupLook tells how far it is.
    """

    directory: str
    bytes_per_second: int


class BackupLook(ClientRequest, frozen=True):
    """Ask how far the last backup is. The answer is Ok: `{"state", "directory", "text", "stores"}`.

    `state` is none, freeze, hold, copy, copying, done or failed. Each of `stores` has "store", "bytes" copied, and
    "total".
    """

    after_loss = AfterLoss.ASK_AGAIN
    only_reads = True


class WatermarksPut(ClientRequest, frozen=True):
    """Set watermarks of all processes until they end; nil leaves one as it is. The answer is Ok.

    `memory_bytes` is for each shard and each gateway, `disk_free_bytes` for the disk of each shard.
    """

    after_loss = AfterLoss.ASK_AGAIN

    memory_bytes: int | None = None
    disk_free_bytes: int | None = None


class HostDrain(ClientRequest, frozen=True):
    """Have everything that a host of a broker on several has moved to others, or let it have replicas again.

    The answer is Ok, once that is noted: it goes on from there.
    """

    after_loss = AfterLoss.ASK_AGAIN

    host: Name
    is_draining: bool = True


class ShardTransfer(ClientRequest, frozen=True):
    """Have a shard, or the coordinator, led by another host that is in sync. The answer is Ok, once that is noted."""

    after_loss = AfterLoss.ASK_AGAIN

    shard: Name
    host: Name


class ShardMove(ClientRequest, frozen=True):
    """Have a replica of a shard, or the coordinator, on another host. The answer is Ok, once that is noted."""

    shard: Name
    source: Name
    target: Name


class TracingPut(ClientRequest, frozen=True):
    """Trace this part of a virtual host's messages, 0 for none, until the broker's processes end. The answer is Ok."""

    after_loss = AfterLoss.ASK_AGAIN

    vhost: Name
    sample: float = 1.0


class DefinitionsExport(ClientRequest, frozen=True):
    """Ask for all that is durable. The answer is Ok, in the shape of RabbitMQ's definitions."""

    after_loss = AfterLoss.ASK_AGAIN
    only_reads = True


class DefinitionsImport(ClientRequest, frozen=True):
    """Create or set what is in definitions of RabbitMQ's shape; topics, exchanges and queues that exist stay so.

    The answer is Ok: `{"imported": {noun: count}, "skipped": [sentence, …]}`. A refusal says what was wrong, and what
    was created until then.
    """

    after_loss = AfterLoss.ASK_AGAIN

    definitions: dict[str, Any]
