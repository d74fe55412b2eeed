"""Topics and consumer groups: what there is, lag, and groups that are reset."""

from typing import Any, Final

from shardmq.management.web.body import flag, number
from shardmq.management.web.call import Call, Row
from shardmq.management.web.endpoint import NO_CONTENT, Answer, Endpoint, Right, put
from shardmq.management.web.errors import ApiError
from shardmq.management.web.listing import listed
from shardmq.message.json_values import plain


async def list_topics(call: Call) -> Answer:
    """The topics of all virtual hosts that the caller may see."""
    rows = [{**row, "arguments": plain(row["arguments"])} for row in await call.rows("topics")]
    return Answer(listed(rows, call.query))


async def list_groups(call: Call) -> Answer:
    """The consumer groups of all virtual hosts that the caller may see."""
    return Answer(listed(await call.rows("groups"), call.query))


async def get_topic(call: Call) -> Answer:
    """One topic, with its partitions and groups."""
    channel = await call.channel(await call.vhost())
    info = await channel.topic_info(call.part("topic"))
    return Answer({**info, "arguments": plain(info["arguments"])})


async def put_topic(call: Call) -> Answer:
    """Declare a topic."""
    vhost, name = await call.vhost(), call.part("topic")
    body = await call.body()
    partitions = number(body, "partitions", 1)
    channel = await call.channel(vhost)
    is_new = all(row["name"] != name for row in await call.rows("topics", vhost))
    await channel.topic_declare(name, partitions)
    return put(is_new)


async def delete_topic(call: Call) -> Answer:
    """Delete a topic with its messages."""
    channel = await call.channel(await call.vhost())
    await channel.topic_delete(call.part("topic"))
    return NO_CONTENT


def _start(value: Any) -> Any:
    if value in ("earliest", "latest") or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise ApiError.bad_request(f'\'to\' is {value!r:.40}; give "earliest", "latest" or an offset')


def _partitions(body: Row) -> list[int] | None:
    """The partitions that are meant; None for all.

    Raises:
        ApiError: they are no list of numbers.
    """
    value = body.get("partitions")
    if value is not None and not (isinstance(value, list) and all(type(number) is int for number in value)):
        raise ApiError.bad_request(f"partitions is {value!r:.40}; give a list of whole numbers, or none for all")
    return value


async def reset_group(call: Call) -> Answer:
    """Have a group go on elsewhere, or say what that would change."""
    channel = await call.channel(await call.vhost())
    body = await call.body()
    start, chosen, is_dry = _start(body.get("to")), _partitions(body), flag(body, "dry_run")
    moves = await channel.group_reset(call.part("topic"), call.part("group"), start, chosen, is_dry)
    partitions = [{"partition": number, "old": old, "new": new} for number, (old, new) in sorted(moves.items())]
    messages = sum(abs(new - (old or 0)) for old, new in moves.values())
    return Answer({"dry_run": is_dry, "partitions": partitions, "messages": messages})


async def delete_group(call: Call) -> Answer:
    """Forget a group's offsets."""
    channel = await call.channel(await call.vhost())
    await channel.group_delete(call.part("topic"), call.part("group"))
    return NO_CONTENT


def _endpoint(method: str, path: str, handler: Any, summary: str, answer: Any = Row, body: Any = None) -> Endpoint:
    return Endpoint(method, path, handler, Right.MANAGEMENT, summary, answer, body)


ENDPOINTS: Final = (
    Endpoint("GET", "/shardmq/topics", list_topics, Right.MANAGEMENT, "Topics.", list[Row], is_list=True),
    Endpoint("GET", "/shardmq/groups", list_groups, Right.MANAGEMENT, "Consumer groups.", list[Row], is_list=True),
    _endpoint("GET", "/shardmq/topics/{vhost}/{topic}", get_topic, "One topic, with partitions and groups."),
    _endpoint("PUT", "/shardmq/topics/{vhost}/{topic}", put_topic, "Declare a topic.", None, Row),
    _endpoint("DELETE", "/shardmq/topics/{vhost}/{topic}", delete_topic, "Delete a topic.", None),
    _endpoint("POST", "/shardmq/groups/{vhost}/{topic}/{group}/reset", reset_group, "Reset a group.", Row, Row),
    _endpoint("DELETE", "/shardmq/groups/{vhost}/{topic}/{group}", delete_group, "Forget a group.", None),
)
"""What this file answers."""
