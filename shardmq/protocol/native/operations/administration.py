"""The operations for administrators: virtual hosts, users, permissions, limits, definitions. Users without the tag
"administrator" are refused (403).
"""

from typing import Any

from shardmq.protocol.native.operations.fields import AfterLoss, ClientRequest, Name


class VhostPut(ClientRequest, frozen=True):
    """Makes a virtual host, or changes what is said of it. Answered by Ok."""

    after_loss = AfterLoss.ASK_AGAIN

    vhost: Name
    description: str = ""
    tags: list[str] = []


class VhostDelete(ClientRequest, frozen=True):
    """Removes a virtual host with everything in it. Answered by Ok."""

    after_loss = AfterLoss.ASK_AGAIN
    is_done_where_missing = True

    vhost: Name


class UserPut(ClientRequest, frozen=True):
    """Makes a user, or changes one: what is nil stays. `password_hash` instead of a password is one as `TopologyList`
    of users and RabbitMQ's definitions have it. Answered by Ok.
    """

    after_loss = AfterLoss.ASK_AGAIN

    user: Name
    password: str | None = None
    password_hash: str | None = None
    tags: list[str] | None = None


class UserDelete(ClientRequest, frozen=True):
    """Removes a user with all permissions. Answered by Ok."""

    after_loss = AfterLoss.ASK_AGAIN
    is_done_where_missing = True

    user: Name


class PermissionPut(ClientRequest, frozen=True):
    """What a user may do in a virtual host, as regular expressions. Answered by Ok."""

    after_loss = AfterLoss.ASK_AGAIN

    user: Name
    vhost: Name
    configure: str
    write: str
    read: str


class PermissionDelete(ClientRequest, frozen=True):
    """Answered by Ok, also when there was none."""

    after_loss = AfterLoss.ASK_AGAIN

    user: Name
    vhost: Name


class LimitsPut(ClientRequest, frozen=True):
    """Limits a "vhost" (max-connections, max-queues) or a "user" (max-connections, max-channels); nil lifts a limit.
    Answered by Ok.
    """

    after_loss = AfterLoss.ASK_AGAIN

    noun: Name
    name: Name
    limits: dict[str, int | None]


class ConnectionExpel(ClientRequest, frozen=True):
    """Closes a client's connection, as `TopologyList` of connections names it. Answered by Ok."""

    connection: Name
    reason: str = ""


class BackupBegin(ClientRequest, frozen=True):
    """Has the broker copy its stores into a new folder, on the hosts where they are, while it goes on. Answered by Ok
    once it is settled what is in the backup; `BackupLook` tells how far it is.
    """

    directory: str
    bytes_per_second: int


class BackupLook(ClientRequest, frozen=True):
    """Answered by Ok: how far the last backup is, with `state` (none, freeze, hold, copy, copying, done, failed),
    `text`, and for each of `stores` how many bytes of how many are copied.
    """

    after_loss = AfterLoss.ASK_AGAIN


class DefinitionsExport(ClientRequest, frozen=True):
    """Answered by Ok: all that is durable, in the shape of RabbitMQ's definitions."""

    after_loss = AfterLoss.ASK_AGAIN


class DefinitionsImport(ClientRequest, frozen=True):
    """Makes what is in definitions of RabbitMQ's shape and not there yet. Answered by Ok: `{"imported": {noun: count},
    "skipped": [sentence, …]}`; refused with what was wrong, and what was made until then.
    """

    after_loss = AfterLoss.ASK_AGAIN

    definitions: dict[str, Any]
