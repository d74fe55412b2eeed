"""A message on its way, and what a shovel writes into it."""

import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from shardmq.message.properties import Properties
from shardmq.protocol.amqp import properties as lists
from shardmq.topology.parameters.shovel import ShovelSettings, shown_uri

FORWARDED: Final = "x-shovelled"
FORWARDED_AT: Final = "x-shovelled-timestamp"
"""Headers of messages that shovels have moved; RabbitMQ's names."""

KNOWN_MAX: Final = 1024
"""Property lists that are remembered with their translations: neighbours mostly have the same."""


class ShovelMessage(msgspec.Struct, gc=False):
    """A message on its way.

    Attributes:
        body: of it.
        tag: by which the source knows it.
        exchange: where it was published.
        routing_key: with which.
        properties: of it; None where they are in `raw`.
        raw: its property list as AMQP has it; None where they are in `properties`.
    """

    body: bytes
    tag: int
    exchange: str
    routing_key: str
    properties: Properties | None = None
    raw: bytes | None = None

    @property
    def native(self) -> Properties:
        """The properties, for the native protocol."""
        if self.properties is not None:
            return self.properties
        return _decoded(self.raw or lists.NO_PROPERTIES)

    @property
    def list(self) -> bytes:
        """The property list, for AMQP: as it came, where it did come over AMQP and nothing was written into it."""
        return self.raw if self.raw is not None else lists.encode(self.properties or Properties())


@lru_cache(maxsize=KNOWN_MAX)
def _decoded(raw: bytes) -> Properties:
    return Properties() if raw == lists.NO_PROPERTIES else lists.decode(raw)


class Labels:
    """Writes into messages what a shovel's settings say.

    Args:
        name: of the shovel.
        vhost: where it is defined.
        settings: of the shovel.
    """

    def __init__(self, name: str, vhost: str, settings: ShovelSettings) -> None:
        self._settings = settings
        self._headers = _headers(name, vhost, settings) if settings.has_forward_headers else None
        headers = settings.properties.get("headers")
        fields = {key: value for key, value in settings.properties.items() if key != "headers"}
        self._fields = msgspec.convert(fields, Properties)
        self._changes: Mapping[str, Any] = {key: getattr(self._fields, key) for key in fields}
        self._own: Mapping[str, Any] = headers if isinstance(headers, dict) else {}
        self._is_idle = not (fields or self._own or self._headers or settings.has_timestamp_header)

    def write(self, message: ShovelMessage) -> None:
        """Write into a message."""
        if self._is_idle:
            return
        properties = message.native
        headers = {**(properties.headers or {}), **self._own}
        if self._headers is not None:
            earlier = headers.get(FORWARDED)
            headers[FORWARDED] = [self._headers, *(earlier if isinstance(earlier, list) else [])]
        if self._settings.has_timestamp_header:
            headers[FORWARDED_AT] = int(time.time())
        message.properties = msgspec.structs.replace(properties, headers=headers or None, **self._changes)
        message.raw = None


def _headers(name: str, vhost: str, settings: ShovelSettings) -> dict[str, Any]:
    """What a message's header says of the shovel that moved it."""
    said: dict[str, Any] = {"shovelled-by": "shardmq", "shovel-type": "dynamic", "shovel-name": name}
    said["shovel-vhost"] = vhost
    for side, end in (("src", settings.source), ("dest", settings.destination)):
        said[f"{side}-uri"] = shown_uri(end.uris[0])
        said |= {f"{side}-queue": end.queue} if end.queue is not None else {f"{side}-exchange": end.exchange or ""}
    return said
