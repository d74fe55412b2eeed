"""What commands on virtual hosts, users and permissions change, or why they are refused."""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from shardmq.coordinator.rules import parameters, policies
from shardmq.errors import InvalidRequest, NotFound
from shardmq.topology.cascade import cascade
from shardmq.topology.changes import (
    Change,
    ConnectionClosed,
    ExchangeAdded,
    PermissionPut,
    PermissionRemoved,
    TopicRemoved,
    TracingSet,
    UserPut,
    UserRemoved,
    VhostPut,
    VhostRemoved,
    WatermarksSet,
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
from shardmq.topology.entities import (
    DEFAULT_VHOST,
    Permission,
    User,
    Vhost,
    check_name,
    predeclared,
)
from shardmq.topology.expressions import check_expression
from shardmq.topology.passwords import check_hash, hash_password
from shardmq.topology.topology import Topology

VHOST_LIMITS: Final = ("max-connections", "max-queues")
USER_LIMITS: Final = ("max-connections", "max-channels")

TAGS_MAX: Final = 64
"""Tags of one user or virtual host; all of them travel to every gateway."""

WATERMARK_MAX: Final = 1 << 62
"""Bytes; nobody has so many."""

DESCRIPTION_MAX: Final = 4096
"""Characters of a virtual host's description."""


def guest() -> User:
    """The user of a first start, for connections from the same machine only."""
    return User("guest", hash_password("guest"), ("administrator",))


def guest_permission(vhost: str = DEFAULT_VHOST) -> Permission:
    """The permission of guest to do everything in a virtual host."""
    return Permission("guest", vhost, ".*", ".*", ".*")


def first_changes(topology: Topology) -> list[Change]:
    """The changes with which a broker without any permissions begins.

    A first start adds the default virtual host and the user guest. In a store of a version without permissions, guest
    could do everything, and gets the permission for it.
    """
    permission = guest_permission()
    if not topology.vhosts and not topology.users:
        return [*new_vhost(DEFAULT_VHOST), UserPut(guest()), PermissionPut(permission)]
    if DEFAULT_VHOST in topology.vhosts and permission.user in topology.users:
        return [PermissionPut(permission)]
    return []


def new_vhost(name: str, description: str = "", tags: tuple[str, ...] = ()) -> list[Change]:
    """Add a virtual host with its predeclared exchanges."""
    return [VhostPut(Vhost(name, description, tags)), *map(ExchangeAdded, predeclared(name))]


def missing_exchanges(topology: Topology) -> list[Change]:
    """Add the predeclared exchanges that virtual hosts of an older version's store do not have."""
    wanted = [exchange for vhost in topology.vhosts for exchange in predeclared(vhost)]
    return [ExchangeAdded(each) for each in wanted if (each.vhost, each.name) not in topology.exchanges]


def put_vhost(topology: Topology, command: PutVhost) -> list[Change]:
    """Add a virtual host, or change the description and tags of one."""
    check_name("virtual host", command.vhost)
    _check_tags(command.tags)
    if len(command.description) > DESCRIPTION_MAX:
        raise InvalidRequest(f"the description of vhost '{command.vhost}' is over {DESCRIPTION_MAX} characters")
    there = topology.vhosts.get(command.vhost)
    if there is None:
        return new_vhost(command.vhost, command.description, command.tags)
    put = Vhost(command.vhost, command.description, command.tags, there.limits)
    return [VhostPut(put)] if put != there else []


def delete_vhost(topology: Topology, command: DeleteVhost) -> list[Change]:
    """Delete everything in a virtual host, then itself."""
    vhost = command.vhost
    topology.check_vhost(vhost)
    return [
        *(TopicRemoved(vhost, topic.name) for topic in topology.topics.values() if topic.vhost == vhost),
        *cascade(
            topology,
            queues=[queue for queue in topology.queues.values() if queue.vhost == vhost],
            exchanges=[exchange for exchange in topology.exchanges.values() if exchange.vhost == vhost],
        ),
        *policies.of_vhost(topology, vhost),
        *parameters.of_vhost(topology, vhost),
        *_without(permission for permission in topology.permissions.values() if permission.vhost == vhost),
        VhostRemoved(vhost),
    ]


def put_user(topology: Topology, command: PutUser) -> list[Change]:
    """Add a user, or change the password and tags of one. A new user without a password cannot log in by one."""
    check_name("user", command.name)
    _check_tags(command.tags or ())
    check_hash(command.password or "")
    there = topology.users.get(command.name, User(command.name, ""))
    put = User(
        command.name,
        there.password if command.password is None else command.password,
        there.tags if command.tags is None else command.tags,
        there.limits,
    )
    return [UserPut(put)] if topology.users.get(command.name) != put else []


def delete_user(topology: Topology, command: DeleteUser) -> list[Change]:
    """Delete a user and their permissions."""
    _check_user(topology, command.name)
    allowed = (permission for permission in topology.permissions.values() if permission.user == command.name)
    return [*policies.of_user(topology, command.name), *_without(allowed), UserRemoved(command.name)]


def put_permission(topology: Topology, command: PutPermission) -> list[Change]:
    """Set what a user may do in a virtual host."""
    topology.check_vhost(command.vhost)
    _check_user(topology, command.user)
    for verb in ("configure", "write", "read"):
        check_expression(f"the {verb} expression", getattr(command, verb))
    put = Permission(command.user, command.vhost, command.configure, command.write, command.read)
    return [PermissionPut(put)] if topology.permissions.get((command.user, command.vhost)) != put else []


def delete_permission(topology: Topology, command: DeletePermission) -> list[Change]:
    """Remove a user's permission in a virtual host; nothing changes where there is none."""
    topology.check_vhost(command.vhost)
    _check_user(topology, command.user)
    there = (command.user, command.vhost) in topology.permissions
    return [PermissionRemoved(command.user, command.vhost)] if there else []


def put_limits(topology: Topology, command: PutLimits) -> list[Change]:
    """Change limits of a user or a virtual host. A negative limit removes it, as in RabbitMQ."""
    if command.user:
        _check_user(topology, command.user)
        user = topology.users[command.user]
        limits = _limited(f"user '{command.user}'", user.limits, command.limits, USER_LIMITS)
        return [UserPut(msgspec.structs.replace(user, limits=limits))] if limits != user.limits else []
    topology.check_vhost(command.vhost)
    vhost = topology.vhosts[command.vhost]
    limits = _limited(f"vhost '{command.vhost}'", vhost.limits, command.limits, VHOST_LIMITS)
    return [VhostPut(msgspec.structs.replace(vhost, limits=limits))] if limits != vhost.limits else []


def expel(topology: Topology, command: CloseConnection) -> list[Change]:  # noqa: ARG001  (the topology has no connections)
    """Tell the gateways to close a connection; the topology stays as it is."""
    return [ConnectionClosed(command.connection, command.reason)]


def set_watermarks(topology: Topology, command: SetWatermarks) -> list[Change]:  # noqa: ARG001  (it has none)
    """Tell the gateways their memory watermark; the topology stays as it is."""
    for what, level in (("memory", command.memory_bytes), ("free disk", command.disk_free_bytes)):
        if level is not None and not 0 < level < WATERMARK_MAX:
            raise InvalidRequest(f"a {what} watermark of {level} bytes makes no sense; give 1 to {WATERMARK_MAX - 1}")
    return [WatermarksSet(command.memory_bytes)]


def set_tracing(topology: Topology, command: SetTracing) -> list[Change]:
    """Change which part of a virtual host's messages is traced."""
    vhost, sample = command.vhost, command.sample
    topology.check_vhost(vhost)
    if not 0 <= sample <= 1:
        raise InvalidRequest(f"vhost '{vhost}' cannot have {sample:g} of its messages traced; give 0 (none) to 1 (all)")
    return [TracingSet(vhost, sample)] if sample != topology.tracing.get(vhost, 0) else []


def _without(permissions: Iterable[Permission]) -> list[Change]:
    return [PermissionRemoved(permission.user, permission.vhost) for permission in permissions]


def _check_user(topology: Topology, name: str) -> None:
    if name not in topology.users:
        raise NotFound(f"no user '{name}'; add them first")


def _check_tags(tags: tuple[str, ...]) -> None:
    if len(tags) > TAGS_MAX:
        raise InvalidRequest(f"{len(tags)} tags are more than the {TAGS_MAX} there may be")
    for tag in tags:
        check_name("tag", tag)


def _limited(
    thing: str, limits: Mapping[str, int], asked: Mapping[str, int | None], known: tuple[str, ...]
) -> dict[str, int]:
    """Limits as they are after a command."""
    put = dict(limits)
    for name, limit in asked.items():
        if name not in known:
            raise InvalidRequest(f"unknown limit '{name}' for {thing}; known are {', '.join(known)}")
        if limit is None or limit < 0:
            put.pop(name, None)
        else:
            put[name] = limit
    return put
