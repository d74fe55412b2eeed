"""All that is durable, in the shape of RabbitMQ's definitions: out as a file, in as JSON or from a form."""

import asyncio
import logging
from typing import Final
from urllib.parse import quote

from aiohttp import BodyPartReader, MultipartReader, StreamReader
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http_exceptions import HttpProcessingError

from shardmq.management.web.call import LARGE_BYTES_MAX, Call, Row, as_table, too_large
from shardmq.management.web.endpoint import NO_CONTENT, Answer, Endpoint, Handler, Right
from shardmq.management.web.errors import ApiError
from shardmq.management.web.streaming import json_table

OF_VHOST: Final = ("topics", "exchanges", "queues", "bindings", "policies", "parameters")
"""What is in a virtual host."""

KEPT: Final = "Topics, exchanges and queues that are there stay as they are."

_log = logging.getLogger(__name__)


async def get_definitions(call: Call) -> Answer:
    """All that is durable; with `download` as a file of that name."""
    return _downloaded(call, await (await call.caller.administration()).definitions_export())


async def get_definitions_of_vhost(call: Call) -> Answer:
    """All that is durable in a virtual host; the things do not name it."""
    vhost = await call.vhost()
    definitions = await (await call.caller.administration()).definitions_export()
    found: Row = {name: value for name, value in definitions.items() if not isinstance(value, list)}
    found["rabbitmq_definition_format"] = "single_virtual_host"
    found["original_vhost_name"] = vhost
    for noun in OF_VHOST:
        rows = [row for row in definitions.get(noun, []) if row["vhost"] == vhost]
        found[noun] = [{name: value for name, value in row.items() if name != "vhost"} for row in rows]
    return _downloaded(call, found)


def _downloaded(call: Call, definitions: Row) -> Answer:
    name = call.query.get("download", "")
    headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}"} if name else {}
    return Answer(json_table(definitions), headers=headers)


async def post_definitions(call: Call) -> Answer:
    """Create or set what definitions name."""
    definitions = await _definitions(call)
    result = await (await call.caller.administration()).definitions_import(definitions)
    return _imported(call, result)


async def post_definitions_of_vhost(call: Call) -> Answer:
    """Create or set what definitions name, in one virtual host."""
    vhost, definitions = await call.vhost(), await _definitions(call)
    inside = {
        noun: [_inside(row, vhost) for row in rows] if isinstance(rows, list) else rows
        for noun, rows in definitions.items()
        if noun in OF_VHOST
    }
    result = await (await call.caller.administration()).definitions_import(inside)
    return _imported(call, result)


def _inside(row: object, vhost: str) -> object:
    """What definitions name, in that virtual host; what has no fields is for the broker to refuse."""
    return {**row, "vhost": vhost} if isinstance(row, dict) else row


def _imported(call: Call, result: Row) -> Answer:
    for sentence in result["skipped"]:
        _log.info("definitions of user '%s': left out: %s", call.user, sentence)
    return NO_CONTENT


async def _definitions(call: Call) -> Row:
    """The definitions in a request: its body, or the field "file" of a form.

    Raises:
        ApiError: there are none, or too large ones.
    """
    if not call.request.content_type.startswith("multipart/"):
        return await call.body()
    try:
        form = MultipartReader(call.request.headers, _stream(await call.content()))
        while (part := await form.next()) is not None:
            if isinstance(part, BodyPartReader) and part.name == "file":
                return as_table(await _content(part))
    except (ValueError, AssertionError, HttpProcessingError) as fault:
        raise ApiError.bad_request(f"the form cannot be read: {fault}") from fault
    raise ApiError.bad_request("the form has no field 'file' with definitions")


def _stream(content: bytes) -> StreamReader:
    """A body that has come, as aiohttp reads forms."""
    loop = asyncio.get_running_loop()
    stream = StreamReader(BaseProtocol(loop), len(content) + 1, loop=loop)
    stream.feed_data(content)
    stream.feed_eof()
    return stream


async def _content(part: BodyPartReader) -> bytes:
    content = bytearray()
    while chunk := await part.read_chunk():
        content += chunk
        if len(content) > LARGE_BYTES_MAX:
            raise too_large(LARGE_BYTES_MAX)
    return bytes(content)


def _get(path: str, handler: Handler, summary: str) -> Endpoint:
    return Endpoint("GET", path, handler, Right.ADMINISTRATOR, summary, Row, parameters=("download",))


def _post(path: str, handler: Handler, summary: str) -> Endpoint:
    return Endpoint("POST", path, handler, Right.ADMINISTRATOR, summary, body=Row, body_bytes_max=LARGE_BYTES_MAX)


ENDPOINTS: Final = (
    _get("/definitions", get_definitions, "All that is durable."),
    _get("/definitions/{vhost}", get_definitions_of_vhost, "All that is durable in a virtual host."),
    _post("/definitions", post_definitions, f"Create or set what they name. {KEPT}"),
    _post("/definitions/{vhost}", post_definitions_of_vhost, f"Create or set what they name in a virtual host. {KEPT}"),
)
"""What this file answers."""
