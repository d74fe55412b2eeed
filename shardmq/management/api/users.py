"""Users, and who the caller is."""

from typing import Final

from shardmq.management.web.call import Call, Row
from shardmq.management.web.endpoint import Answer, Endpoint, Right
from shardmq.management.web.errors import ApiError
from shardmq.management.web.listing import listed


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


ENDPOINTS: Final = (
    Endpoint("GET", "/whoami", whoami, Right.MANAGEMENT, "Who the caller is.", Row),
    Endpoint("GET", "/users", list_users, Right.ADMINISTRATOR, "All users.", list[Row], is_list=True),
    Endpoint("GET", "/users/{user}", get_user, Right.ADMINISTRATOR, "One user.", Row),
)
"""What this file answers."""
