"""Permissions: what a user may do in a virtual host."""

from typing import Any, Final

import msgspec

from shardmq.management.api.users import find_user
from shardmq.management.web.body import text
from shardmq.management.web.call import Call, Row
from shardmq.management.web.endpoint import NO_CONTENT, Answer, Endpoint, Right, put
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


async def put_permission(call: Call) -> Answer:
    """Set what a user may do in a virtual host."""
    vhost, body = await call.vhost(), await call.body()
    user = (await find_user(call, call.part("user")))["name"]
    configure, write, read = (text(body, name) for name in ("configure", "write", "read"))
    is_new = all(row["user"] != user for row in await call.rows("permissions", vhost))
    await (await call.caller.administration()).permission_put(user, vhost, configure, write, read)
    return put(is_new)


async def delete_permission(call: Call) -> Answer:
    """Take a user's permission in a virtual host away."""
    found = await find_permission(call)
    await (await call.caller.administration()).permission_delete(found["user"], found["vhost"])
    return NO_CONTENT


class PermissionBody(msgspec.Struct):
    """What a user may do, as regular expressions of names."""

    configure: str
    write: str
    read: str


PERMISSION: Final = "/permissions/{vhost}/{user}"


def _list(path: str, handler: Any, summary: str) -> Endpoint:
    return Endpoint("GET", path, handler, Right.ADMINISTRATOR, summary, list[Row], is_list=True)


ENDPOINTS: Final = (
    _list("/permissions", list_permissions, "All permissions."),
    _list("/permissions/{vhost}", list_permissions_of_vhost, "The permissions in a virtual host."),
    _list("/vhosts/{vhost}/permissions", list_permissions_of_vhost, "The permissions in a virtual host."),
    _list("/users/{user}/permissions", list_permissions_of_user, "The permissions of a user."),
    Endpoint("GET", PERMISSION, get_permission, Right.ADMINISTRATOR, "One user's permission.", Row),
    Endpoint("PUT", PERMISSION, put_permission, Right.ADMINISTRATOR, "Set a permission.", body=PermissionBody),
    Endpoint("DELETE", PERMISSION, delete_permission, Right.ADMINISTRATOR, "Delete a permission."),
)
"""What this file answers."""
