"""What a command changes, or why it is refused. RabbitMQ's rules; pure functions of the topology."""

import logging
from collections.abc import Callable
from typing import Any, Final

from shardmq.coordinator.rules import access, exchanges, parameters, policies, queues, topics
from shardmq.coordinator.rules.queues import QueuePlacement
from shardmq.errors import ReplyCode, RequestError
from shardmq.topology.changes import Change
from shardmq.topology.commands import (
    Bind,
    CloseConnection,
    Command,
    DeclareExchange,
    DeclareQueue,
    DeclareTopic,
    DeleteExchange,
    DeleteParameter,
    DeletePermission,
    DeletePolicy,
    DeleteQueue,
    DeleteTopic,
    DeleteTopicPermission,
    DeleteUser,
    DeleteVhost,
    ExtendTopic,
    PutLimits,
    PutParameter,
    PutPermission,
    PutPolicy,
    PutTopicPermission,
    PutUser,
    PutVhost,
    ReportShovels,
    SetTracing,
    SetWatermarks,
    Unbind,
)
from shardmq.topology.entities import check_nesting
from shardmq.topology.topology import Topology

_log = logging.getLogger(__name__)


def changes_for(topology: Topology, command: Command, places: QueuePlacement) -> list[Change]:
    """The changes that carry out a command; none where everything is already so.

    Args:
        topology: as it is now; not touched.
        command: to be carried out.
        places: for a queue that is new.

    Raises:
        RequestError: refused; NotFound, PreconditionFailed, AccessRefused, ResourceLocked or InvalidRequest. So is a
            command that a rule fails with as nobody expected: nothing was changed.
    """
    try:
        return _changes_for(topology, command, places)
    except RequestError:
        raise
    except Exception as fault:
        what = type(command).__name__
        _log.exception("%s failed and is refused; nothing was changed", what)
        text = f"the coordinator failed to carry out {what} ({type(fault).__name__}): nothing was changed; see its log"
        raise RequestError(text, ReplyCode.INTERNAL_ERROR) from fault


def _changes_for(topology: Topology, command: Command, places: QueuePlacement) -> list[Change]:
    access_rule = _ACCESS.get(type(command))
    if access_rule is not None:
        return access_rule(topology, command)
    topology.check_vhost(command.vhost)
    check_nesting(getattr(command, "arguments", None))
    placing_rule = _PLACING.get(type(command))
    if placing_rule is not None:
        return placing_rule(topology, command, places)
    return _INSIDE[type(command)](topology, command)


_Rule = Callable[[Topology, Any], list[Change]]

_PLACING: Final[dict[type[Any], Callable[[Topology, Any, QueuePlacement], list[Change]]]] = {
    DeclareQueue: queues.declare_queue,
    DeclareTopic: topics.declare_topic,
    ExtendTopic: topics.extend_topic,
}
"""Rules for commands inside a virtual host that may make queues."""

_INSIDE: Final[dict[type[Any], _Rule]] = {
    DeclareExchange: exchanges.declare_exchange,
    DeleteExchange: exchanges.delete_exchange,
    Bind: exchanges.bind,
    Unbind: exchanges.unbind,
    DeleteQueue: queues.delete_queue,
    DeleteTopic: topics.delete_topic,
    PutPolicy: policies.put_policy,
    DeletePolicy: policies.delete_policy,
    PutTopicPermission: policies.put_topic_permission,
    DeleteTopicPermission: policies.delete_topic_permission,
    PutParameter: parameters.put_parameter,
    DeleteParameter: parameters.delete_parameter,
}
"""Rules for commands inside a virtual host."""

_ACCESS: Final[dict[type[Any], _Rule]] = {
    PutVhost: access.put_vhost,
    DeleteVhost: access.delete_vhost,
    PutUser: access.put_user,
    DeleteUser: access.delete_user,
    PutPermission: access.put_permission,
    DeletePermission: access.delete_permission,
    PutLimits: access.put_limits,
    CloseConnection: access.expel,
    SetWatermarks: access.set_watermarks,
    SetTracing: access.set_tracing,
    ReportShovels: parameters.report_shovels,
}
"""Rules for commands on virtual hosts and users."""
