"""Users, and who the caller is."""

from typing import Final

import msgspec

from shardmq.management.web.body import text, words
from shardmq.management.web.call import Call, Row
from shardmq.management.web.endpoint import NO_CONTENT, Answer, Endpoint, Right, put
from shardmq.management.web.errors import ApiError
from shardmq.management.web.listing import listed
from shardmq.topology.passwords import rabbitmq_hash


def user_row(row: Row) -> Row:
    """A user, in RabbitMQ's words."""
    return {
        "name": row["name"],
        "password_hash": row.get("password_hash", ""),
        "hashing_algorithm": row.get("hashing_algorithm", ""),
        "tags": row["tags"],
        "limits": row["limits"],
    }


async def find_user(call: Call, name: str) -> Row:
    """One user's row.

    Raises:
        ApiError: there is none.
    """
    for row in await call.rows("users"):
        if row["name"] == name:
            return row
    raise ApiError.not_found(f"no user '{name}'")


async def whoami(call: Call) -> Answer:
    """Who the caller is."""
    return Answer({"name": call.user, "tags": list(call.caller.tags), "is_internal_user": True})


async def list_users(call: Call) -> Answer:
    """All users."""
    return Answer(listed([user_row(row) for row in await call.rows("users")], call.query))


async def get_user(call: Call) -> Answer:
    """One user."""
    return Answer(user_row(await find_user(call, call.part("user"))))


async def put_user(call: Call) -> Answer:
    """Create or change a user; without a password and a hash of one, nobody can log in as it by a password."""
    name, body = call.part("user"), await call.body()
    password, stored, tags = text(body, "password", ""), text(body, "password_hash", ""), _tags(name, body)
    if password and stored:
        raise ApiError.bad_request("password and password_hash are given; give one of them")
    is_new = all(row["name"] != name for row in await call.rows("users"))
    connection = await call.caller.administration()
    if password:
        await connection.user_put(name, password, tags=tags)
    else:
        await connection.user_put(name, password_hash=stored, tags=tags)
    call.forget(name)
    return put(is_new)


def _tags(name: str, body: Row) -> list[str]:
    """The tags that a user is to have.

    Raises:
        ApiError: none are given, which would take all from who has some.
    """
    if body.get("tags") is None:
        example = '"tags": "administrator"; "" is none'
        raise ApiError.bad_request(f"tags_not_present: name all tags that user '{name}' is to have, as {example}")
    return words(body, "tags")


async def delete_user(call: Call) -> Answer:
    """Delete a user with all permissions."""
    name = (await find_user(call, call.part("user")))["name"]
    await (await call.caller.administration()).user_delete(name)
    call.forget(name)
    return NO_CONTENT


async def delete_users(call: Call) -> Answer:
    """Delete several users."""
    names = words(await call.body(), "users")
    connection = await call.caller.administration()
    known = {row["name"] for row in await call.rows("users")}
    for name in names:
        if name in known:
            await connection.user_delete(name)
            call.forget(name)
    return NO_CONTENT


async def list_users_without_permissions(call: Call) -> Answer:
    """The users who can open no virtual host."""
    permitted = {row["user"] for row in await call.rows("permissions")}
    rows = [user_row(row) for row in await call.rows("users") if row["name"] not in permitted]
    return Answer(listed(rows, call.query))


async def hash_password(call: Call) -> Answer:
    """The hash of a password, as definitions and users have it."""
    return Answer({"ok": rabbitmq_hash(call.part("password"))})


class UserBody(msgspec.Struct):
    """What a user is to be."""

    tags: list[str] | str
    password: str | None = None
    password_hash: str | None = None
    hashing_algorithm: str | None = None


class UsersBody(msgspec.Struct):
    """Which users are meant."""

    users: list[str]


ENDPOINTS: Final = (
    Endpoint("GET", "/whoami", whoami, Right.MANAGEMENT, "Who the caller is.", Row),
    Endpoint("GET", "/users", list_users, Right.ADMINISTRATOR, "All users.", list[Row], is_list=True),
    Endpoint(
        "GET",
        "/users/without-permissions",
        list_users_without_permissions,
        Right.ADMINISTRATOR,
        "Users who can open no virtual host.",
        list[Row],
        is_list=True,
    ),
    Endpoint("POST", "/users/bulk-delete", delete_users, Right.ADMINISTRATOR, "Delete users.", body=UsersBody),
    Endpoint("GET", "/users/{user}", get_user, Right.ADMINISTRATOR, "One user.", Row),
    Endpoint("PUT", "/users/{user}", put_user, Right.ADMINISTRATOR, "Create or change a user.", body=UserBody),
    Endpoint("DELETE", "/users/{user}", delete_user, Right.ADMINISTRATOR, "Delete a user."),
    Endpoint(
        "GET",
        "/auth/hash_password/{password}",
        hash_password,
        Right.MANAGEMENT,
        "The hash of a password.",
        Row,
        has_secret=True,
    ),
)
"""What this file answers."""
