"""The requests about policies, topic permissions and parameters, as values."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from shardmq.client.api.results import converted
from shardmq.client.core.requests.request import Request, nothing
from shardmq.client.core.validation import check_names, table
from shardmq.errors import InvalidRequest
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

Table = dict[str, Any]
Kind = Literal["queue", "exchange"]

_FIELDS: Final = ("pattern", "definition", "priority", "apply-to")


class _Settings(msgspec.Struct, rename={"apply_to": "apply-to"}, forbid_unknown_fields=True):
    """A policy as RabbitMQ's HTTP API takes it."""

    pattern: str
    definition: dict[str, Any]
    priority: int = 0
    apply_to: str = "all"


def _read(settings: Mapping[str, Any]) -> _Settings:
    try:
        return msgspec.convert(table("settings", settings), _Settings)
    except msgspec.ValidationError as fault:
        raise InvalidRequest(f"settings of a policy: {fault}; they are {', '.join(_FIELDS)}") from fault


def _tables(result: object) -> list[Table]:
    return converted(result, list[Table], "a request for a list of tables")


def _title(policy: str, operator: bool) -> str:
    return f"{'operator ' if operator else ''}policy '{policy}'"


def policy_put(vhost: str, policy: str, settings: Mapping[str, Any], operator: bool) -> Request[None]:
    """Make a policy, or change it."""
    check_names(vhost=vhost, policy=policy)
    read = _read(settings)
    operation = PolicyPut(0, 0, vhost, policy, read.pattern, read.definition, read.priority, read.apply_to, operator)
    return Request(f"putting {_title(policy, operator)}", nothing, operation)


def policy_delete(vhost: str, policy: str, operator: bool) -> Request[None]:
    """Remove a policy."""
    check_names(vhost=vhost, policy=policy)
    return Request(f"deleting {_title(policy, operator)}", nothing, PolicyDelete(0, 0, vhost, policy, operator))


def policy_preview(vhost: str, policy: str, settings: Mapping[str, Any] | None, operator: bool) -> Request[list[Table]]:
    """Ask what a policy would change."""
    check_names(vhost=vhost, policy=policy)
    if settings is None:
        operation = PolicyPreview(0, 0, vhost, policy, is_operator=operator, is_deleted=True)
    else:
        read = _read(settings)
        operation = PolicyPreview(
            0, 0, vhost, policy, read.pattern, read.definition, read.priority, read.apply_to, operator
        )
    return Request(f"previewing {_title(policy, operator)}", _tables, operation)


def policy_match(
    vhost: str, name: str, kind: Kind, type: Literal["classic", "quorum", "stream"]
) -> Request[list[Table]]:
    """Ask which policies match a name."""
    check_names(vhost=vhost, name=name)
    return Request(f"asking for policies of {kind} '{name}'", _tables, PolicyMatch(0, 0, vhost, kind, name, type))


def topic_permission_put(user: str, vhost: str, exchange: str, write: str, read: str) -> Request[None]:
    """Set which routing keys a user may use with an exchange."""
    check_names(user=user, vhost=vhost, exchange=exchange)
    operation = TopicPermissionPut(0, 0, user, vhost, exchange, write, read)
    return Request(f"putting a topic permission of user '{user}'", nothing, operation)


def topic_permission_delete(user: str, vhost: str, exchange: str | None) -> Request[None]:
    """Take topic permissions of a user away."""
    check_names(user=user, vhost=vhost)
    operation = TopicPermissionDelete(0, 0, user, vhost, exchange)
    return Request(f"deleting topic permissions of user '{user}'", nothing, operation)


def parameter_put(vhost: str, component: str, name: str, value: Mapping[str, Any] | None) -> Request[None]:
    """Give a component a parameter; None has it begin anew with the one there is."""
    check_names(vhost=vhost, component=component, name=name)
    given = None if value is None else table("value", value)
    operation = ParameterPut(0, 0, vhost, component, name, given)
    return Request(f"putting {component} '{name}'", nothing, operation)


def parameter_delete(vhost: str, component: str, name: str, generation: int) -> Request[None]:
    """Take a parameter away."""
    check_names(vhost=vhost, component=component, name=name)
    operation = ParameterDelete(0, 0, vhost, component, name, generation)
    return Request(f"deleting {component} '{name}'", nothing, operation)


def shovels_report(rows: Sequence[Table]) -> Request[None]:
    """Tell the states of shovels."""
    return Request("reporting of shovels", nothing, ShovelReport(0, 0, list(rows)))
