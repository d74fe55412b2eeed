"""Permissions: what a user may do in a virtual host."""

from typing import Any, Final

from shardmq.management.api.users import find_user
from shardmq.management.web.call import Call, Row
from shardmq.management.web.endpoint import Answer, Endpoint, Right
from shardmq.management.web.errors import ApiError
from shardmq.management.web.listing import listed


async def list_permissions(call: Call) -> Answer:
    """All permissions."""
    return Answer(listed(await call.rows("permissions"), call.query))


async def list_permissions_of_vhost(call: Call) -> Answer:
    """The permissions in a virtual host."""
    return Answer(listed(await call.rows("permissions", await call.vhost()), call.query))


async def list_permissions_of_user(call: Call) -> Answer:
    """The permissions of a user."""
    name = (await find_user(call, call.part("user")))["name"]
    return Answer(listed([row for row in await call.rows("permissions") if row["user"] == name], call.query))


async def find_permission(call: Call) -> Row:
    """The permission that the path names.

    Raises:
        ApiError: there is none.
    """
    vhost, user = await call.vhost(), call.part("user")
    for row in await call.rows("permissions", vhost):
        if row["user"] == user:
            return row
    raise ApiError.not_found(f"user '{user}' has no permission in vhost '{vhost}'")


async def get_permission(call: Call) -> Answer:
    """What a user may do in a virtual host."""
    return Answer(await find_permission(call))


def _list(path: str, handler: Any, summary: str) -> Endpoint:
    return Endpoint("GET", path, handler, Right.ADMINISTRATOR, summary, list[Row], is_list=True)


ENDPOINTS: Final = (
    _list("/permissions", list_permissions, "All permissions."),
    _list("/permissions/{vhost}", list_permissions_of_vhost, "The permissions in a virtual host."),
    _list("/vhosts/{vhost}/permissions", list_permissions_of_vhost, "The permissions in a virtual host."),
    _list("/users/{user}/permissions", list_permissions_of_user, "The permissions of a user."),
    Endpoint("GET", "/permissions/{vhost}/{user}", get_permission, Right.ADMINISTRATOR, "One user's permission.", Row),
)
"""What this file answers."""
