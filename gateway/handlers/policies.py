"""Policies, operator policies and topic permissions: who may change and see them, and what they would change.

Policies are for users with the tag "policymaker" in virtual hosts that they may open, and for administrators; operator
policies and topic permissions are for administrators alone (RabbitMQ's rules).
"""

from typing import Any, Final

from shardmq.bus.coordinator_link import Reply
from shardmq.errors import AccessRefused
from shardmq.gateway.handlers.administration import check_administrator
from shardmq.gateway.handlers.lists import may_see
from shardmq.gateway.handlers.replies import done
from shardmq.gateway.session.channel import Channel
from shardmq.gateway.session.client import Client
from shardmq.protocol.native.operations.topology import (
    PolicyDelete,
    PolicyMatch,
    PolicyPreview,
    PolicyPut,
    TopicPermissionDelete,
    TopicPermissionPut,
)
from shardmq.topology.commands import DeletePolicy, DeleteTopicPermission, PutPolicy, PutTopicPermission
from shardmq.topology.entities import Policy
from shardmq.topology.policies.keys import check_policy
from shardmq.topology.policies.preview import matching, preview

POLICYMAKER: Final = "policymaker"


def check_policymaker(client: Client, vhost: str) -> None:
    """Make sure that the user may change and see policies of a virtual host.

    Raises:
        AccessRefused: the user has neither tag, or as a policymaker no permission there.
        NotFound: there is no such virtual host.
    """
    if client.is_administrator:
        client.state.topology.check_vhost(vhost)
        return
    if POLICYMAKER not in client.tags:
        raise AccessRefused(
            f"policies are refused for user '{client.user}': they take the tag 'policymaker' or 'administrator'"
        )
    if (client.user, vhost) not in client.state.topology.permissions:
        raise AccessRefused(f"access to vhost '{vhost}' refused for user '{client.user}'")


def policy_put(channel: Channel, operation: PolicyPut, reply: Reply) -> None:
    """Create or change a policy."""
    client = channel.client
    _check(client, operation.vhost, operation.is_operator)
    command = PutPolicy(
        operation.vhost,
        operation.policy,
        operation.pattern,
        operation.definition,
        operation.priority,
        operation.apply_to,
        operation.is_operator,
    )
    client.perform(command, done(reply))


def policy_delete(channel: Channel, operation: PolicyDelete, reply: Reply) -> None:
    """Delete a policy."""
    client = channel.client
    _check(client, operation.vhost, operation.is_operator)
    client.perform(DeletePolicy(operation.vhost, operation.policy, operation.is_operator), done(reply))


def policy_preview(channel: Channel, operation: PolicyPreview, reply: Reply) -> None:
    """Say what setting or deleting a policy would change.

    Raises:
        AccessRefused: not for this user.
        InvalidRequest: the policy makes no sense.
    """
    client = channel.client
    check_policymaker(client, operation.vhost)
    wanted = Policy(
        operation.vhost,
        operation.policy,
        operation.pattern,
        operation.definition,
        operation.priority,
        operation.apply_to,
        operation.is_operator,
    )
    if not operation.is_deleted:
        check_policy(wanted.pattern, wanted.definition, wanted.priority, wanted.apply_to, wanted.is_operator)
    reply(preview(client.state.topology, wanted, operation.is_deleted))


def policy_match(channel: Channel, operation: PolicyMatch, reply: Reply) -> None:
    """Say which policies match a name, to everybody who may open the virtual host.

    Raises:
        AccessRefused: the user may not.
        NotFound: there is no such virtual host.
    """
    client = channel.client
    client.state.topology.check_vhost(operation.vhost)
    if not may_see(client, operation.vhost):
        raise AccessRefused(f"access to vhost '{operation.vhost}' refused for user '{client.user}'")
    reply(matching(client.state.topology, operation.vhost, operation.kind, operation.name, operation.type))


def topic_permission_put(channel: Channel, operation: TopicPermissionPut, reply: Reply) -> None:
    """Set which routing keys a user may use with a topic exchange."""
    check_administrator(channel.client, "changing permissions")
    command = PutTopicPermission(operation.vhost, operation.user, operation.exchange, operation.write, operation.read)
    channel.client.perform(command, done(reply))


def topic_permission_delete(channel: Channel, operation: TopicPermissionDelete, reply: Reply) -> None:
    """Delete topic permissions of a user."""
    check_administrator(channel.client, "changing permissions")
    channel.client.perform(DeleteTopicPermission(operation.vhost, operation.user, operation.exchange), done(reply))


def _check(client: Client, vhost: str, is_operator: bool) -> None:
    if is_operator:
        check_administrator(client, "changing operator policies")
    else:
        check_policymaker(client, vhost)


REQUESTS: Final[dict[type[Any], Any]] = {
    PolicyPut: policy_put,
    PolicyDelete: policy_delete,
    PolicyPreview: policy_preview,
    PolicyMatch: policy_match,
    TopicPermissionPut: topic_permission_put,
    TopicPermissionDelete: topic_permission_delete,
}
