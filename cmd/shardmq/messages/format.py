"""Messages as the commands show them: to people as lines, to machines as JSON."""

import base64
import sys
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from shardmq.client.api.message import Message


def described(message: "Message") -> dict[str, Any]:
    """All there is to know of a message. The body is text where it is UTF-8, else base64."""
    try:
        body = {"body": message.body.decode()}
    except UnicodeDecodeError:
        body = {"body_base64": base64.b64encode(message.body).decode()}
    return {
        **body,
        "exchange": message.exchange,
        "routing_key": message.routing_key,
        "redelivered": message.redelivered,
        "persistent": message.persistent,
        "message_id": message.message_id,
        "timestamp_ms": message.timestamp_ms,
        "properties": message.properties,
    }


def write_whole(number: int, message: "Message") -> None:
    """A message with everything that came with it, for people."""
    import msgspec

    table = described(message)
    marks = [mark for mark in ("redelivered", "persistent") if table[mark]]
    click.secho(
        f"--- {number:,}: {table['message_id']} to '{message.exchange}' with '{message.routing_key}'"
        f"{', ' if marks else ''}{', '.join(marks)}, {len(message.body):,} bytes",
        bold=True,
    )
    for name, value in msgspec.to_builtins(message.properties).items():
        if name == "headers":
            for header, inner in value.items():
                click.echo(f"header {header}: {msgspec.json.encode(inner).decode()}")
        else:
            click.echo(f"{name}: {value}")
    click.echo(body_text(message))


def body_text(message: "Message") -> str:
    """A body for people: JSON indented, text as it is, else base64."""
    import msgspec

    try:
        text = message.body.decode()
    except UnicodeDecodeError:
        return f"base64: {base64.b64encode(message.body).decode()}"
    if message.properties.content_type == "application/json":
        try:
            return msgspec.json.format(text, indent=2)
        except msgspec.DecodeError:
            return text
    return text


def write_body(message: "Message") -> None:
    """The bytes of a body and a line feed, to stdout."""
    sys.stdout.buffer.write(message.body + b"\n")
