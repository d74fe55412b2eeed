"""The operations for administrators: virtual hosts, users, permissions, limits, definitions. Users without the tag
"administrator" are refused (403).
"""

from typing import Any

from shardmq.protocol.native.operations.fields import Channel, Name, Operation, Request


class VhostPut(Operation, frozen=True):
    """Makes a virtual host, or changes what is said of it. Answered by Ok."""

    request: Request
    channel: Channel
    vhost: Name
    description: str = ""
    tags: list[str] = []


class VhostDelete(Operation, frozen=True):
    """Removes a virtual host with everything in it. Answered by Ok."""

    request: Request
    channel: Channel
    vhost: Name


class UserPut(Operation, frozen=True):
    """Makes a user, or changes one: what is nil stays. `password_hash` instead of a password is one as `TopologyList`
    of users and RabbitMQ's definitions have it. Answered by Ok.
    """

    request: Request
    channel: Channel
    user: Name
    password: str | None = None
    password_hash: str | None = None
    tags: list[str] | None = None


class UserDelete(Operation, frozen=True):
    """Removes a user with all permissions. Answered by Ok."""

    request: Request
    channel: Channel
    user: Name


class PermissionPut(Operation, frozen=True):
    """What a user may do in a virtual host, as regular expressions. Answered by Ok."""

    request: Request
    channel: Channel
    user: Name
    vhost: Name
    configure: str
    write: str
    read: str


class PermissionDelete(Operation, frozen=True):
    """Answered by Ok, also when there was none."""

    request: Request
    channel: Channel
    user: Name
    vhost: Name


class LimitsPut(Operation, frozen=True):
    """Limits a "vhost" (max-connections, max-queues) or a "user" (max-connections, max-channels); nil lifts a limit.
    Answered by Ok.
    """

    request: Request
    channel: Channel
    noun: Name
    name: Name
    limits: dict[str, int | None]


class ConnectionExpel(Operation, frozen=True):
    """Closes a client's connection, as `TopologyList` of connections names it. Answered by Ok."""

    request: Request
    channel: Channel
    connection: Name
    reason: str = ""


class BackupBegin(Operation, frozen=True):
    """Has the broker copy its stores into a new folder, on the hosts where they are, while it goes on. Answered by Ok
    once it is settled what is in the backup; `BackupLook` tells how far it is.
    """

    request: Request
    channel: Channel
    directory: str
    bytes_per_second: int


class BackupLook(Operation, frozen=True):
    """Answered by Ok: how far the last backup is, with `state` (none, freeze, hold, copy, copying, done, failed),
    `text`, and for each of `stores` how many bytes of how many are copied.
    """

    request: Request
    channel: Channel


class DefinitionsExport(Operation, frozen=True):
    """Answered by Ok: all that is durable, in the shape of RabbitMQ's definitions."""

    request: Request
    channel: Channel


class DefinitionsImport(Operation, frozen=True):
    """Makes what is in definitions of RabbitMQ's shape and not there yet. Answered by Ok: `{"imported": {noun: count},
    "skipped": [sentence, …]}`; refused with what was wrong, and what was made until then.
    """

    request: Request
    channel: Channel
    definitions: dict[str, Any]
