"""Answers as JSON."""

from typing import Any

import msgspec

from shardmq.message.json_values import other

_encoder = msgspec.json.Encoder(enc_hook=other)


def encoded(value: Any) -> bytes:
    """A value as JSON."""
    return _encoder.encode(value)
