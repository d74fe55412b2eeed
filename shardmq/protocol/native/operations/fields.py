"""What operations are made of: their base, and the types of the fields that many of them have."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from shardmq.limits import CHANNELS_MAX, NAME_BYTES_MAX

Request = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Channel = Annotated[int, Meta(ge=0, le=CHANNELS_MAX)]
Tag = Annotated[int, Meta(ge=1, le=2**63 - 1)]
Name = Annotated[str, Meta(max_length=NAME_BYTES_MAX)]
Arguments = dict[str, Any]
TagRanges = list[tuple[Tag, Tag]]
"""Inclusive ranges [first, last], as delivery tags or request numbers."""


class Operation(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True, gc=False):
    """One frame's meaning."""
