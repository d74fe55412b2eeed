"""Policies, operator policies and topic permissions in definitions, out and in.

RabbitMQ's exports have policies as such, and operator policies as parameters of the component "operator_policy".
"""

from typing import Any, Final

from shardmq.definitions.rows import Row
from shardmq.definitions.schema import ParameterItem, PolicyItem, TopicPermissionItem, as_table
from shardmq.errors import InvalidRequest
from shardmq.topology.commands import PutPolicy, PutTopicPermission
from shardmq.topology.entities import Policy, TopicPermission
from shardmq.topology.policies.keys import APPLY_TO, OPERATOR_SETTINGS, SETTINGS
from shardmq.topology.topology import Topology

OPERATOR_POLICY: Final = "operator_policy"
"""The component of parameters that are operator policies."""


def exported_policies(topology: Topology) -> list[Row]:
    """All policies."""
    return [
        {"vhost": each.vhost, "name": each.name, **_value(each)} for each in topology.policies if not each.is_operator
    ]


def exported_parameters(topology: Topology) -> list[Row]:
    """All operator policies, as parameters."""
    return [
        {"component": OPERATOR_POLICY, "name": each.name, "vhost": each.vhost, "value": _value(each)}
        for each in topology.policies
        if each.is_operator
    ]


def topic_permission_row(permission: TopicPermission) -> Row:
    """The row of a topic permission."""
    return {
        "user": permission.user,
        "vhost": permission.vhost,
        "exchange": permission.exchange,
        "write": permission.write,
        "read": permission.read,
    }


def exported_topic_permissions(topology: Topology) -> list[Row]:
    """All topic permissions."""
    return [topic_permission_row(each) for there in topology.topic_permissions.values() for each in there.values()]


def _value(policy: Policy) -> Row:
    return {
        "pattern": policy.pattern,
        "apply-to": policy.apply_to,
        "definition": policy.definition,
        "priority": policy.priority,
    }


def operator_policy(parameter: ParameterItem) -> PolicyItem:
    """The operator policy that a parameter is.

    Raises:
        InvalidRequest: it has another shape.
    """
    value = as_table(parameter.value)
    pattern, definition, priority = value.get("pattern"), value.get("definition"), value.get("priority", 0)
    if type(pattern) is not str or not isinstance(definition, dict | list) or type(priority) is not int:
        raise InvalidRequest(
            f"definitions: operator policy '{parameter.name}' needs a pattern, a definition and a number as priority"
        )
    apply_to = str(value.get("apply-to", "all"))
    return PolicyItem(parameter.name, pattern, definition, parameter.vhost, priority, apply_to)


def put_policy(
    topology: Topology, item: PolicyItem, vhost: str, is_operator: bool, skipped: list[str]
) -> PutPolicy | None:
    """The command for a policy of definitions; None where it is there already, or nothing of it means anything here.

    Args:
        topology: as it is.
        item: the policy.
        vhost: the virtual host where it names none.
        is_operator: whether it is an operator policy.
        skipped: gets a sentence for each setting that is left out.
    """
    vhost = item.vhost or vhost
    thing = f"{'operator ' if is_operator else ''}policy '{item.name}' in vhost '{vhost}'"
    known = OPERATOR_SETTINGS if is_operator else SETTINGS
    definition: dict[str, Any] = {}
    for name, value in as_table(item.definition).items():
        if name in known:
            definition[name] = value
        else:
            skipped.append(f"'{name}' of {thing}: there is no such setting here; the policy does without it")
    if item.apply_to not in APPLY_TO:
        skipped.append(f"{thing}: it applies to '{item.apply_to}', which is not known here")
        return None
    if not definition:
        skipped.append(f"{thing}: it has no settings that there are here")
        return None
    put = PutPolicy(vhost, item.name, item.pattern, definition, item.priority, item.apply_to, is_operator)
    there = topology.policies.get(vhost, item.name, is_operator)
    wanted = Policy(vhost, item.name, item.pattern, definition, item.priority, item.apply_to, is_operator)
    return None if there == wanted else put


def put_topic_permission(topology: Topology, item: TopicPermissionItem, vhost: str) -> PutTopicPermission | None:
    """The command for a topic permission of definitions; None where it is there already."""
    vhost = item.vhost or vhost
    there = topology.topic_permissions.get((item.user, vhost), {}).get(item.exchange)
    wanted = TopicPermission(item.user, vhost, item.exchange, item.write, item.read)
    return None if there == wanted else PutTopicPermission(vhost, item.user, item.exchange, item.write, item.read)
