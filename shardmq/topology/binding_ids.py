"""What makes two bindings the same, and where a topology finds them."""

from typing import Any

import msgspec

from shardmq.topology.entities import Binding

BindingId = tuple[str, str, str, bool, str, bytes]
"""The identity of a binding."""


def binding_id(binding: Binding) -> BindingId:
    """The identity of a binding: both ends, key and arguments, whatever their order."""
    arguments = _encode_sorted(binding.arguments) if binding.arguments else b""
    return binding.vhost, binding.exchange, binding.destination, binding.to_exchange, binding.key, arguments


_encode_sorted = msgspec.msgpack.Encoder(order="sorted").encode


def ends(binding: Binding) -> tuple[tuple[str, str], tuple[str, str, bool]]:
    """The source and the destination of a binding, as its topology's indexes have them."""
    return (binding.vhost, binding.exchange), (binding.vhost, binding.destination, binding.to_exchange)


def take_out(index: dict[Any, dict[BindingId, Binding]], end: Any, identity: BindingId) -> None:
    """Take a binding out of an index, and an end out that has none left."""
    bindings = index[end]
    del bindings[identity]
    if not bindings:
        del index[end]
