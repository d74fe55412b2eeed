"""Property lists for the tests of the codec and of the broker."""

from typing import Any

from hypothesis import strategies as st

from shardmq.errors import ReplyCode
from shardmq.message.properties import Properties
from shardmq.protocol.amqp.errors import AmqpError
from shardmq.protocol.amqp.property_facts import DIRECT_REPLY
from shardmq.protocol.amqp.tables import wrapped
from tests.protocol.amqp.test_tables import tables

texts = st.none() | st.text(max_size=60)
lists = st.builds(
    Properties,
    content_type=texts,
    content_encoding=texts,
    headers=st.none() | tables,
    delivery_mode=st.none() | st.integers(0, 255),
    priority=st.none() | st.integers(0, 255),
    correlation_id=texts,
    reply_to=texts | st.just(DIRECT_REPLY),
    expiration=texts,
    message_id=texts,
    timestamp=st.none() | st.integers(0, 2**64 - 1),
    type=texts,
    user_id=texts,
    app_id=texts,
)


def outcome(look: Any, raw: bytes) -> Any:
    try:
        return look(raw)
    except AmqpError as error:
        assert error.code == ReplyCode.SYNTAX_ERROR
        return None


EVERY_TYPE = (
    b"\x01bb\xff\x01BB\xff\x01ss\xff\xff\x01uu\xff\xff\x01II\x00\x00\x00\x01\x01ii\x00\x00\x00\x01"
    b"\x01ll\x00\x00\x00\x00\x00\x00\x00\x01\x01LL\x00\x00\x00\x00\x00\x00\x00\x01"
    b"\x01ff\x3f\x00\x00\x00\x01dd\x3f\xe0\x00\x00\x00\x00\x00\x00\x01DD\x02\x00\x00\x00\x7d"
    b"\x01tt\x01\x01SS\x00\x00\x00\x01a\x01xx\x00\x00\x00\x01a\x01TT\x00\x00\x00\x00\x00\x00\x00\x01"
    b"\x01AA\x00\x00\x00\x04Vs\x01\x01\x01FF\x00\x00\x00\x04\x01nb\x01\x01VV\x01\xffV"
)
"""A table's entries: one of each type, named by its letter; and a name that is not UTF-8."""


def with_headers(entries: bytes) -> bytes:
    """A list with headers, a correlation id that is not UTF-8, and a cluster id."""
    return b"\x24\x04" + wrapped(b"", entries) + b"\x02\xff\xfe" + b"\x01c"
