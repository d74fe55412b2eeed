"""Policies, operator policies and topic permissions."""

from typing import Any, Final

from shardmq.management.api.users import find_user
from shardmq.management.web.body import number, text
from shardmq.management.web.call import Call, Row
from shardmq.management.web.endpoint import NO_CONTENT, Answer, Endpoint, Handler, Right, put
from shardmq.management.web.errors import ApiError
from shardmq.management.web.listing import listed
from shardmq.message.json_values import plain

APPLY_TO: Final = "apply-to"


def policy_row(row: Row) -> Row:
    """A policy, in RabbitMQ's words."""
    return {
        "vhost": row["vhost"],
        "name": row["name"],
        "pattern": row["pattern"],
        APPLY_TO: row["apply_to"],
        "definition": plain(row["definition"]),
        "priority": row["priority"],
    }


async def _policies(call: Call, is_operator: bool, vhost: str | None = None) -> list[Row]:
    return [row for row in await call.rows("policies", vhost) if row["operator"] == is_operator]


def _of(is_operator: bool) -> tuple[Handler, Handler, Handler, Handler, Handler]:
    """The handlers of policies, or of operator policies: all, those of a virtual host, one, set, delete."""
    noun = "operator policy" if is_operator else "policy"

    async def everywhere(call: Call) -> Answer:
        return Answer(listed([policy_row(row) for row in await _policies(call, is_operator)], call.query))

    async def of_vhost(call: Call) -> Answer:
        rows = await _policies(call, is_operator, await call.vhost())
        return Answer(listed([policy_row(row) for row in rows], call.query))

    async def find(call: Call) -> Row:
        vhost, name = await call.vhost(), call.part("name")
        for row in await _policies(call, is_operator, vhost):
            if row["name"] == name:
                return row
        raise ApiError.not_found(f"no {noun} '{name}' in vhost '{vhost}'")

    async def one(call: Call) -> Answer:
        return Answer(policy_row(await find(call)))

    async def write(call: Call) -> Answer:
        vhost, name = await call.vhost(), call.part("name")
        is_new = all(row["name"] != name for row in await _policies(call, is_operator, vhost))
        await (await call.caller.administration()).policy_put(vhost, name, settings_in(await call.body()), is_operator)
        return put(is_new)

    async def delete(call: Call) -> Answer:
        found = await find(call)
        await (await call.caller.administration()).policy_delete(found["vhost"], found["name"], is_operator)
        return NO_CONTENT

    return everywhere, of_vhost, one, write, delete


def settings_in(body: Row) -> Row:
    """The settings of a policy, as a request's body has them.

    Raises:
        ApiError: the pattern or the definition is missing, or they make no sense.
    """
    definition = body.get("definition")
    if not isinstance(definition, dict):
        raise ApiError.bad_request("key_missing: definition" if definition is None else "the definition is no object")
    found: Row = {"pattern": text(body, "pattern"), "definition": definition, APPLY_TO: text(body, APPLY_TO, "all")}
    return {**found, "priority": number(body, "priority", 0)}


async def list_topic_permissions(call: Call) -> Answer:
    """All topic permissions."""
    return Answer(listed(await call.rows("topic-permissions"), call.query))


async def list_topic_permissions_of_vhost(call: Call) -> Answer:
    """The topic permissions in a virtual host."""
    return Answer(listed(await call.rows("topic-permissions", await call.vhost()), call.query))


async def list_topic_permissions_of_user(call: Call) -> Answer:
    """The topic permissions of a user."""
    name = (await find_user(call, call.part("user")))["name"]
    return Answer(listed([row for row in await call.rows("topic-permissions") if row["user"] == name], call.query))


async def _topic_permissions(call: Call) -> list[Row]:
    vhost, user = await call.vhost(), call.part("user")
    return [row for row in await call.rows("topic-permissions", vhost) if row["user"] == user]


async def get_topic_permissions(call: Call) -> Answer:
    """The topic permissions of a user in a virtual host."""
    found = await _topic_permissions(call)
    if not found:
        raise ApiError.not_found(f"user '{call.part('user')}' has no topic permission in '{call.part('vhost')}'")
    return Answer(found)


async def put_topic_permission(call: Call) -> Answer:
    """Set which routing keys a user may publish with and bind by at a topic exchange."""
    vhost, body = await call.vhost(), await call.body()
    user = (await find_user(call, call.part("user")))["name"]
    exchange, write, read = (text(body, name) for name in ("exchange", "write", "read"))
    is_new = all(row["exchange"] != exchange for row in await _topic_permissions(call))
    await (await call.caller.administration()).topic_permission_put(user, vhost, exchange, write, read)
    return put(is_new)


async def delete_topic_permissions(call: Call) -> Answer:
    """Take the topic permissions of a user in a virtual host away."""
    vhost, user = await call.vhost(), (await find_user(call, call.part("user")))["name"]
    await (await call.caller.administration()).topic_permission_delete(user, vhost)
    return NO_CONTENT


def _list(path: str, handler: Any, right: Right, summary: str) -> Endpoint:
    return Endpoint("GET", path, handler, right, summary, list[Row], is_list=True)


def _policy_endpoints(place: str, is_operator: bool, noun: str) -> tuple[Endpoint, ...]:
    everywhere, of_vhost, one, write, delete = _of(is_operator)
    to_write = Right.ADMINISTRATOR if is_operator else Right.POLICYMAKER
    path = f"/{place}/{{vhost}}/{{name}}"
    return (
        _list(f"/{place}", everywhere, Right.MANAGEMENT, f"All {noun}."),
        _list(f"/{place}/{{vhost}}", of_vhost, Right.MANAGEMENT, f"The {noun} of a virtual host."),
        Endpoint("GET", path, one, Right.MANAGEMENT, f"One of the {noun}.", Row),
        Endpoint("PUT", path, write, to_write, f"Set one of the {noun}.", None, Row),
        Endpoint("DELETE", path, delete, to_write, f"Delete one of the {noun}."),
    )


TOPIC_PERMISSION: Final = "/topic-permissions/{vhost}/{user}"
_ADMIN: Final = Right.ADMINISTRATOR

ENDPOINTS: Final = (
    *_policy_endpoints("policies", False, "policies"),
    *_policy_endpoints("operator-policies", True, "operator policies"),
    _list("/topic-permissions", list_topic_permissions, _ADMIN, "All topic permissions."),
    _list("/topic-permissions/{vhost}", list_topic_permissions_of_vhost, _ADMIN, "Those in a virtual host."),
    _list("/vhosts/{vhost}/topic-permissions", list_topic_permissions_of_vhost, _ADMIN, "Those in a virtual host."),
    _list("/users/{user}/topic-permissions", list_topic_permissions_of_user, _ADMIN, "Those of a user."),
    Endpoint("GET", TOPIC_PERMISSION, get_topic_permissions, _ADMIN, "Those of a user in a virtual host.", list[Row]),
    Endpoint("PUT", TOPIC_PERMISSION, put_topic_permission, _ADMIN, "Set a topic permission.", None, Row),
    Endpoint("DELETE", TOPIC_PERMISSION, delete_topic_permissions, _ADMIN, "Delete a user's topic permissions."),
)
"""What this file answers."""
