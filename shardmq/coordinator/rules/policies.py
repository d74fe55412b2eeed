"""What commands on policies and topic permissions change, or why they are refused."""

from typing import Final

import msgspec

from shardmq.errors import InvalidRequest, NotAllowed, NotFound
from shardmq.topology.changes import (
    Change,
    PolicyPut,
    PolicyRemoved,
    TopicPermissionPut,
    TopicPermissionRemoved,
)
from shardmq.topology.commands import DeletePolicy, DeleteTopicPermission, PutPolicy, PutTopicPermission
from shardmq.topology.entities import Policy, TopicPermission, check_name, check_nesting
from shardmq.topology.expressions import check_expression
from shardmq.topology.policies.keys import check_policy
from shardmq.topology.topology import Topology

POLICIES_MAX: Final = 1000
"""Policies and operator policies of a virtual host: each is tried with each name."""

TOPIC_PERMISSIONS_MAX: Final = 1000
"""Topic permissions of a user in a virtual host: every gateway knows them all."""

DEFINITION_BYTES_MAX: Final = 64 << 10
"""Bytes of a policy's definition: every gateway knows it, and what follows from it is stored with each queue."""


def put_policy(topology: Topology, command: PutPolicy) -> list[Change]:
    """Add a policy, or change one."""
    vhost, name = command.vhost, command.name
    check_name("policy", name)
    check_nesting(command.definition)
    check_policy(command.pattern, command.definition, command.priority, command.apply_to, command.is_operator)
    if len(msgspec.msgpack.encode(command.definition)) > DEFINITION_BYTES_MAX:
        raise InvalidRequest(f"the definition of policy '{name}' is over {DEFINITION_BYTES_MAX} bytes; make it shorter")
    there = topology.policies.get(vhost, name, command.is_operator)
    if there is None and topology.policies.count(vhost) >= POLICIES_MAX:
        raise NotAllowed(
            f"cannot add policy '{name}': vhost '{vhost}' has {POLICIES_MAX} policies, which is the limit; delete some"
        )
    put = Policy(
        vhost,
        name,
        command.pattern,
        command.definition,
        command.priority,
        command.apply_to,
        command.is_operator,
    )
    return [PolicyPut(put)] if put != there else []


def delete_policy(topology: Topology, command: DeletePolicy) -> list[Change]:
    """Delete a policy."""
    if topology.policies.get(command.vhost, command.name, command.is_operator) is None:
        kind = "operator policy" if command.is_operator else "policy"
        raise NotFound(f"no {kind} '{command.name}' in vhost '{command.vhost}'")
    return [PolicyRemoved(command.vhost, command.name, command.is_operator)]


def put_topic_permission(topology: Topology, command: PutTopicPermission) -> list[Change]:
    """Set which routing keys a user may use with an exchange, which need not exist yet."""
    if command.user not in topology.users:
        raise NotFound(f"no user '{command.user}'; add them first")
    if command.exchange:
        check_name("exchange", command.exchange)
    check_expression("the write expression", command.write)
    check_expression("the read expression", command.read)
    there = topology.topic_permissions.get((command.user, command.vhost), {})
    if command.exchange not in there and len(there) >= TOPIC_PERMISSIONS_MAX:
        raise NotAllowed(
            f"user '{command.user}' has {TOPIC_PERMISSIONS_MAX} topic permissions in vhost '{command.vhost}', which is "
            "the limit; delete some"
        )
    put = TopicPermission(command.user, command.vhost, command.exchange, command.write, command.read)
    return [TopicPermissionPut(put)] if there.get(command.exchange) != put else []


def delete_topic_permission(topology: Topology, command: DeleteTopicPermission) -> list[Change]:
    """Delete topic permissions of a user: one, or all; nothing changes where there are none."""
    if command.user not in topology.users:
        raise NotFound(f"no user '{command.user}'; add them first")
    there = topology.topic_permissions.get((command.user, command.vhost), {})
    exchanges = list(there) if command.exchange is None else [name for name in there if name == command.exchange]
    return [TopicPermissionRemoved(command.user, command.vhost, name) for name in exchanges]


def of_vhost(topology: Topology, vhost: str) -> list[Change]:
    """Delete the policies and topic permissions of a virtual host that is being deleted."""
    return [
        *(PolicyRemoved(vhost, each.name, each.is_operator) for each in topology.policies if each.vhost == vhost),
        *_topic_permissions(topology, vhost=vhost),
    ]


def of_user(topology: Topology, user: str) -> list[Change]:
    """Delete the topic permissions of a user who is being deleted."""
    return _topic_permissions(topology, user=user)


def _topic_permissions(topology: Topology, vhost: str | None = None, user: str | None = None) -> list[Change]:
    return [
        TopicPermissionRemoved(whose, where, exchange)
        for (whose, where), there in topology.topic_permissions.items()
        if where == vhost or whose == user
        for exchange in there
    ]
