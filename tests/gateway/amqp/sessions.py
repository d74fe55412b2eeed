"""What fuzzed clients say: methods of all kinds with fields that make sense or do not, in the midst of messages."""

from typing import Any, Final

from hypothesis import strategies as st

from shardmq.protocol.amqp import encoder as sending
from shardmq.protocol.amqp.events import HEARTBEAT
from shardmq.protocol.amqp.methods import codec as methods
from shardmq.protocol.amqp.methods.basic import BasicDeliver, BasicPublish, BasicReturn
from shardmq.protocol.amqp.methods.fields import Method
from tests.protocol.amqp.bytestreams import PERSISTENT_LIST, ack, body, header, publish

NAMES: Final = [
    "fuzzed",
    "fuzzed",
    "fuzzed-2",
    "",
    "amq.topic",
    "amq.headers",
    "nowhere",
    "a.*.#",
    "amq.rabbitmq.reply-to",
]
TABLES: Final[list[dict[str, Any]]] = [
    {},
    {},
    {"x-max-length": 5},
    {"x-max-length": "five"},
    {"x-message-ttl": 100, "x-dead-letter-exchange": ""},
    {"x-match": "any", "a": 1},
    {"x-max-priority": 3},
    {"x-queue-type": "quorum"},
    {"x-overflow": "reject-publish"},
    {"a": [1, {"b": None}], "c": b"\xff", "d": -1.5},
    {"alternate-exchange": "amq.fanout"},
]
LISTS: Final = [
    b"\0\0",
    PERSISTENT_LIST,
    b"\x18\0\2\5",
    b"\x02\0\3dlx",
    b"\x01\0\x03100",
    b"\0\x10\5other",
    b"\x02\0\x15amq.rabbitmq.reply-to",
    b"\x20\0\0\0\0\7\2CCA\0\0\0\0",
    b"\x20\0\0\0\0\0",
    b"",
    b"\xff\xff\xff",
]

_FIELDS: Final[dict[str, st.SearchStrategy[Any]]] = {
    "bit": st.booleans(),
    "octet": st.integers(0, 255),
    "short": st.sampled_from([0, 0, 1, 2, 200, 65_535]),
    "long": st.sampled_from([0, 0, 1, 4096, 2**32 - 1]),
    "longlong": st.sampled_from([0, 1, 1, 2, 3, 2**64 - 1]),
    "shortstr": st.sampled_from(NAMES) | st.text(max_size=10),
    "longstr": st.binary(max_size=10),
    "table": st.sampled_from(TABLES),
    "message-count": st.sampled_from([0, 1, 2**32 - 1]),
}
_WITH_CONTENT: Final = (BasicPublish, BasicReturn, BasicDeliver)


def of_kind(kind: type[Method]) -> st.SearchStrategy[Method]:
    """Methods of one kind."""
    return st.tuples(*[_FIELDS[domain] for domain in kind.domains]).map(lambda values: kind(*values))


LIKELY: Final = [kind for kind in methods.METHODS.values() if kind.id[0] not in (10, 20) and kind not in _WITH_CONTENT]
"""Methods that need not end a session at once."""

channels = st.sampled_from([1, 1, 1, 1, 2, 2, 3, 0, 65_535])
likely = st.sampled_from(LIKELY).flatmap(of_kind)
any_method = st.sampled_from(sorted(methods.METHODS.values(), key=lambda kind: kind.id)).flatmap(of_kind)
bodies = st.sampled_from([b"", b"x", b"y" * 100, b"z" * 5000])

pieces = (
    st.builds(sending.method_frame, channels, likely)
    | st.builds(sending.method_frame, channels, likely)
    | st.builds(sending.method_frame, channels, any_method)
    | st.builds(publish, bodies, channels, st.sampled_from(LISTS), of_kind(BasicPublish))
    | st.builds(lambda tag, channel, count: ack(tag, channel) * count, st.integers(0, 4), channels, st.integers(1, 5))
    | st.builds(header, channels, st.sampled_from([0, 1, 100, 2**40]), st.sampled_from(LISTS))
    | st.builds(body, channels, bodies)
    | st.builds(sending.frame, st.integers(0, 9), channels, st.binary(max_size=20))
    | st.just(sending.frame(HEARTBEAT, 0, b""))
)


@st.composite
def sessions(draw: st.DrawFn) -> bytes:
    """What one client says once it is let in."""
    data = bytearray(b"".join(draw(st.lists(pieces, min_size=1, max_size=15))))
    if draw(st.integers(0, 2)) == 0:  # most are well-formed: what is not ends a session early
        at = draw(st.integers(0, len(data) - 1))
        data[at] = draw(st.integers(0, 255))
    return bytes(data)
