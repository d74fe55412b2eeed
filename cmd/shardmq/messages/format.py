"""Messages as the commands show them: to people as lines, to machines as JSON."""

import base64
import sys
from typing import TYPE_CHECKING, Any, Final

import click

from shardmq.cmd.terminal.rows import CONTROL

if TYPE_CHECKING:
    from shardmq.client.api.message import Message

STEERING: Final = {number: escape for number, escape in CONTROL.items() if chr(number) not in "\n\t"}
"""Control characters that move a terminal's cursor, change its title or answer in the user's name, as escapes."""


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
    """A message with everything that came with it, for people; on a terminal, without what would steer it."""
    import msgspec

    table = described(message)
    marks = [mark for mark in ("redelivered", "persistent") if table[mark]]
    click.secho(
        _harmless(
            f"--- {number:,}: {table['message_id']} to '{message.exchange}' with '{message.routing_key}'"
            f"{', ' if marks else ''}{', '.join(marks)}, {len(message.body):,} bytes"
        ),
        bold=True,
    )
    for name, value in msgspec.to_builtins(message.properties).items():
        if name == "headers":
            for header, inner in value.items():
                click.echo(_harmless(f"header {header}: {msgspec.json.encode(inner).decode()}"))
        else:
            click.echo(_harmless(f"{name}: {value}"))
    click.echo(_harmless(body_text(message)))


def _harmless(text: str) -> str:
    """A text whose control characters, but for line feeds and tabs, are escapes on a terminal; as it is in a pipe."""
    return text.translate(STEERING) if sys.stdout.isatty() else text


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
