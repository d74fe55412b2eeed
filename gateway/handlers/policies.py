"""Policies, operator policies, topic permissions and parameters: who may change them, and what they would change.

Policies and parameters are for users with the tag "policymaker" in virtual hosts that they may open, and for
administrators; operator policies and topic permissions are for administrators alone (RabbitMQ's rules). Whoever makes a
shovel needs the permissions for what it does at this broker.
"""

from collections.abc import Sequence
from typing import Any, Final

from shardmq.bus.coordinator_link import Reply
from shardmq.errors import AccessRefused
from shardmq.gateway.handlers.administration import check_administrator
from shardmq.gateway.handlers.lists import may_see
from shardmq.gateway.handlers.replies import done
from shardmq.gateway.session.channel import Channel
from shardmq.gateway.session.client import Client
from shardmq.gateway.session.publish_split import BCC, CC, IMPERSONATOR, routing_keys
from shardmq.protocol.native.operations.topology import (
    ParameterDelete,
    ParameterPut,
    PolicyDelete,
    PolicyMatch,
    PolicyPreview,
    PolicyPut,
    ShovelReport,
    TopicPermissionDelete,
    TopicPermissionPut,
)
from shardmq.topology.commands import (
    DeleteParameter,
    DeletePolicy,
    DeleteTopicPermission,
    PutParameter,
    PutPolicy,
    PutTopicPermission,
    ReportShovels,
)
from shardmq.topology.entities import Policy, check_nesting
from shardmq.topology.parameters.shovel import SHOVEL, ShovelEnd, ShovelSettings, local_vhost, read_shovel, shown_uri
from shardmq.topology.policies.keys import check_policy
from shardmq.topology.policies.preview import matching, preview
from shardmq.urls import split_url

POLICYMAKER: Final = "policymaker"


def check_policymaker(client: Client, vhost: str, what: str = "policies") -> None:
    """Make sure that the user may change and see policies, or parameters, of a virtual host.

    Args:
        client: whose user it is.
        vhost: by name.
        what: the user is refused, for the error.

    Raises:
        AccessRefused: the user has neither tag, or as a policymaker no permission there.
        NotFound: there is no such virtual host.
    """
    if client.is_administrator:
        client.state.topology.check_vhost(vhost)
        return
    if POLICYMAKER not in client.tags:
        raise AccessRefused(
            f"{what} are refused for user '{client.user}': they take the tag 'policymaker' or 'administrator'"
        )
    if (client.user, vhost) not in client.state.topology.permissions:
        raise AccessRefused(f"access to vhost '{vhost}' refused for user '{client.user}'")


def policy_put(channel: Channel, operation: PolicyPut, reply: Reply) -> None:
    """Create or change a policy.

    Raises:
        AccessRefused: not for this user.
        InvalidRequest: the definition nests too deep.
    """
    client = channel.client
    _check(client, operation.vhost, operation.is_operator)
    check_nesting(operation.definition)
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
    check_nesting(operation.definition)
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


def parameter_put(channel: Channel, operation: ParameterPut, reply: Reply) -> None:
    """Create or change a parameter of a component, or have that begin anew with it.

    Raises:
        AccessRefused: not for this user, or what the shovel would do at this broker is not.
        InvalidRequest: the value makes no sense.
    """
    client = channel.client
    check_policymaker(client, operation.vhost, f"parameters of the component '{operation.component}'")
    value = operation.value
    check_nesting(value)
    if operation.component == SHOVEL and value is not None and not client.is_administrator:
        value = {**value, **_limited(client, read_shovel(operation.name, value))}
    client.state.changed()  # notes the time
    command = PutParameter(operation.vhost, operation.component, operation.name, value, client.state.now_ms)
    client.perform(command, done(reply))


def _limited(client: Client, settings: ShovelSettings) -> dict[str, Any]:
    """Settings with which a shovel does nothing at this broker that its user may not: it has all rights itself.

    Elsewhere it is whom the URI names. Nobody here has checked the `user_id` of messages that come from there, so they
    come without. Where a topic permission limits the user's routing keys, messages' own CC and BCC do not count.

    Raises:
        AccessRefused: what the user wants of it, the user may not do.
        PreconditionFailed: CC or BCC are no lists of routing keys.
    """
    for end in (settings.source, settings.destination):
        _check_login(client, end)
    for vhost in _vhosts_here(settings.source):
        _check_source(client, vhost, settings)
    for vhost in _vhosts_here(settings.destination):
        _check_destination(client, vhost, settings)
    properties = dict(settings.properties)
    if any(local_vhost(uri) is None for uri in settings.source.uris) and IMPERSONATOR not in client.tags:
        properties.setdefault("user_id", None)
    if _has_limited_keys(client, settings.destination):
        properties["headers"] = {CC: [], BCC: [], **(properties.get("headers") or {})}
    return {} if properties == settings.properties else {"dest-publish-properties": properties}


def _vhosts_here(end: ShovelEnd) -> set[str]:
    return {vhost for uri in end.uris if (vhost := local_vhost(uri)) is not None}


def _check_login(client: Client, end: ShovelEnd) -> None:
    """Refuse to log in elsewhere without a user: it would be guest, who may be an administrator of this broker."""
    for uri in end.uris:
        if local_vhost(uri) is None and not split_url(uri).username:
            raise AccessRefused(
                f"a shovel to '{shown_uri(uri)}' without a user is refused for user '{client.user}', as it would log "
                "in as guest; name one, as amqp://user:password@host"
            )


def _check_queue(client: Client, vhost: str, end: ShovelEnd) -> None:
    """Make sure that the user may declare the queue of an end, also where it is there now: it may be deleted."""
    assert end.queue is not None
    if end.is_predeclared:
        return
    allowed = client.state.permissions(client.user, vhost)
    if (vhost, end.queue) not in client.state.topology.queues:
        allowed.check_configure(end.queue)
    allowed.check_dead_letters(end.queue, end.queue_arguments)


def _check_source(client: Client, vhost: str, settings: ShovelSettings) -> None:
    end, allowed = settings.source, client.state.permissions(client.user, vhost)
    name = end.queue or end.exchange or ""
    allowed.check_dead_letters(name, settings.consumer_arguments)
    if end.queue is not None:
        _check_queue(client, vhost, end)
        allowed.check_read(end.queue)
    else:
        allowed.check_read(name, "exchange")
        _check_keys(client, vhost, "read", name, (end.key or "",))


def _check_destination(client: Client, vhost: str, settings: ShovelSettings) -> None:
    end, allowed = settings.destination, client.state.permissions(client.user, vhost)
    user = settings.properties.get("user_id")
    if user not in (None, client.user) and IMPERSONATOR not in client.tags:
        raise AccessRefused(
            f"a shovel that publishes as user '{user}' is refused for user '{client.user}': it takes the tag "
            f"'{IMPERSONATOR}'"
        )
    if end.queue is not None:
        _check_queue(client, vhost, end)
        allowed.check_write("", "exchange")
    elif end.exchange is None:
        raise AccessRefused(
            f"a shovel without dest-queue and dest-exchange is refused for user '{client.user}': messages would "
            "go to any exchange, which takes the tag 'administrator'; name one of them"
        )
    else:
        allowed.check_write(end.exchange, "exchange")
        headers = settings.properties.get("headers") or {}
        more = (*routing_keys(headers, CC), *routing_keys(headers, BCC))
        _check_keys(client, vhost, "write", end.exchange, (end.key, *more))


def _check_keys(client: Client, vhost: str, verb: str, exchange: str, keys: Sequence[str | None]) -> None:
    """Make sure that a topic permission of the user allows these routing keys; None is each message's own."""
    allowed = client.state.permissions(client.user, vhost)
    if not allowed.is_limited(exchange):
        return
    what = f"a topic permission limits the routing keys of user '{client.user}' at exchange '{exchange}'"
    if (vhost, exchange) not in client.state.topology.exchanges:
        raise AccessRefused(f"{what}, which is not there yet; declare it before the shovel")
    named = [key for key in keys if key is not None]
    if len(named) < len(keys):
        raise AccessRefused(f"{what}, and the shovel's messages would have any; give dest-exchange-key")
    allowed.check_topics(verb, exchange, named)


def _has_limited_keys(client: Client, end: ShovelEnd) -> bool:
    vhosts = () if end.exchange is None else _vhosts_here(end)
    return any(client.state.permissions(client.user, vhost).is_limited(end.exchange or "") for vhost in vhosts)


def parameter_delete(channel: Channel, operation: ParameterDelete, reply: Reply) -> None:
    """Delete a parameter of a component."""
    check_policymaker(channel.client, operation.vhost, f"parameters of the component '{operation.component}'")
    command = DeleteParameter(operation.vhost, operation.component, operation.name, operation.generation)
    channel.client.perform(command, done(reply))


def shovel_report(channel: Channel, operation: ShovelReport, reply: Reply) -> None:
    """Tell everybody the states of shovels."""
    check_administrator(channel.client, "reporting of shovels")
    channel.client.perform(ReportShovels("", operation.rows), done(reply))


REQUESTS: Final[dict[type[Any], Any]] = {
    PolicyPut: policy_put,
    PolicyDelete: policy_delete,
    PolicyPreview: policy_preview,
    PolicyMatch: policy_match,
    TopicPermissionPut: topic_permission_put,
    TopicPermissionDelete: topic_permission_delete,
    ParameterPut: parameter_put,
    ParameterDelete: parameter_delete,
    ShovelReport: shovel_report,
}
