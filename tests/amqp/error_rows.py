"""Mistakes of clients, and RabbitMQ's answers, from running the same programs against 3.10.

Where shardmq says something else on purpose, the row says "ours" with what RabbitMQ says behind it.
"""

from collections.abc import Callable, Sequence
from typing import Final

from shardmq.protocol.amqp.methods.basic import (
    BasicAck,
    BasicNack,
    BasicQos,
    BasicRecover,
    BasicRecoverAsync,
    BasicReject,
)
from shardmq.protocol.amqp.methods.connection import ChannelFlow
from shardmq.protocol.amqp.methods.fields import Method
from shardmq.protocol.amqp.methods.topology import QueueDeclare
from shardmq.protocol.amqp.methods.transaction import ConfirmSelect, TxCommit, TxRollback, TxSelect
from tests.amqp import asking as ask
from tests.gateway.amqp.rawclient import RawClient

CHANNEL, CONNECTION = "channel", "connection"
LOCKED: Final = (
    "cannot obtain exclusive access to locked queue '{}' in vhost '/'. It could be originally declared on another "
    "connection or the exclusive property value does not match that of the original declaration."
)
DEFAULT: Final = "operation not permitted on the default exchange"
NOBODYS: Final = "no previously declared queue"

Step = Method | Callable[[RawClient], None]
Row = tuple[str, Sequence[Step], str, int, str]
"""A name, what is said, what ends, the code, the text behind "CODE_NAME - ". It is about the last method said."""


def _to_internal(client: RawClient) -> None:
    client.publish(ask.publish("e.internal", "k"), b"x")


def _to_missing(client: RawClient) -> None:
    client.publish(ask.publish("nope", "k"), b"x")


def _at_once(client: RawClient) -> None:
    client.publish(ask.publish("", "k", immediate=True), b"x")


def _queue(name: str, argument: str, value: object) -> QueueDeclare:
    return ask.declare_queue(name, arguments={argument: value})


EXCHANGES: Final[Sequence[Row]] = [
    ("unknown type", [ask.declare_exchange("e", "nope")], CONNECTION, 503, "unknown exchange type 'nope'"),
    (
        "reserved name",
        [ask.declare_exchange("amq.x")],
        CHANNEL,
        403,
        "exchange name 'amq.x' contains reserved prefix 'amq.*'",
    ),
    ("declare default", [ask.declare_exchange("")], CHANNEL, 403, DEFAULT),
    ("declare default passively", [ask.declare_exchange("", passive=True)], CHANNEL, 403, DEFAULT),
    ("not there", [ask.declare_exchange("nope", passive=True)], CHANNEL, 404, "no exchange 'nope' in vhost '/'"),
    (
        "predeclared, not durable",
        [ask.declare_exchange("amq.direct")],
        CHANNEL,
        406,
        "inequivalent arg 'durable' for exchange 'amq.direct' in vhost '/': received 'false' but current is 'true'",
    ),
    (
        "other type",
        [ask.declare_exchange("e.direct", "fanout")],
        CHANNEL,
        406,
        "inequivalent arg 'type' for exchange 'e.direct' in vhost '/': received 'fanout' but current is 'direct'",
    ),
    (
        "other durability, nowait",
        [ask.declare_exchange("e.direct", durable=True, nowait=True)],
        CHANNEL,
        406,
        "inequivalent arg 'durable' for exchange 'e.direct' in vhost '/': received 'true' but current is 'false'",
    ),
    (
        "auto-delete",
        [ask.declare_exchange("e.direct", auto_delete=True)],
        CHANNEL,
        406,
        "inequivalent arg 'auto_delete' for exchange 'e.direct' in vhost '/': received 'true' but current is 'false'",
    ),
    (
        "internal",
        [ask.declare_exchange("e.direct", internal=True)],
        CHANNEL,
        406,
        "inequivalent arg 'internal' for exchange 'e.direct' in vhost '/': received 'true' but current is 'false'",
    ),
    (
        "alternate",
        [ask.declare_exchange("e.direct", arguments={"alternate-exchange": "f"})],
        CHANNEL,
        406,
        "inequivalent arg 'alternate-exchange' for exchange 'e.direct' in vhost '/': received the value 'f' of type "
        "'longstr' but current is none",
    ),
    # ours; RabbitMQ: invalid type 'signedint' for arg 'alternate-exchange' in exchange 'e.new' in vhost '/'
    (
        "alternate of no sense",
        [ask.declare_exchange("e.new", arguments={"alternate-exchange": 5})],
        CHANNEL,
        406,
        "invalid arg 'alternate-exchange' for exchange 'e.new' in vhost '/': 5; expected is a string",
    ),
    (
        "delete in use",
        [ask.delete_exchange("e.direct", if_unused=True)],
        CHANNEL,
        406,
        "exchange 'e.direct' in vhost '/' in use",
    ),
    ("delete default", [ask.delete_exchange("")], CHANNEL, 403, DEFAULT),
    (
        "delete predeclared",
        [ask.delete_exchange("amq.direct")],
        CHANNEL,
        403,
        "deletion of system exchange 'amq.direct' in vhost '/' not allowed",
    ),
    (
        "delete of a reserved name",
        [ask.delete_exchange("amq.nope")],
        CHANNEL,
        403,
        "deletion of system exchange 'amq.nope' in vhost '/' not allowed",
    ),
    (
        "bind to what is missing",
        [ask.bind_exchange("nope", "e.direct", "k")],
        CHANNEL,
        404,
        "no exchange 'nope' in vhost '/'",
    ),
    ("bind default", [ask.bind_exchange("", "e.direct", "k")], CHANNEL, 403, DEFAULT),
    ("bind to default", [ask.bind_exchange("e.direct", "", "k")], CHANNEL, 403, DEFAULT),
    (
        "publish to internal",
        [_to_internal],
        CHANNEL,
        403,
        "cannot publish to internal exchange 'e.internal' in vhost '/'",
    ),
    ("publish to missing", [_to_missing], CHANNEL, 404, "no exchange 'nope' in vhost '/'"),
    ("publish immediately", [_at_once], CONNECTION, 540, "immediate=true"),
]

QUEUES: Final[Sequence[Row]] = [
    (
        "reserved name",
        [ask.declare_queue("amq.x")],
        CHANNEL,
        403,
        "queue name 'amq.x' contains reserved prefix 'amq.*'",
    ),
    ("not there", [ask.declare_queue("nope", passive=True)], CHANNEL, 404, "no queue 'nope' in vhost '/'"),
    ("no name, passively", [ask.declare_queue("", passive=True)], CHANNEL, 404, "no queue '' in vhost '/'"),
    (
        "other durability",
        [ask.declare_queue("e.q", durable=True)],
        CHANNEL,
        406,
        "inequivalent arg 'durable' for queue 'e.q' in vhost '/': received 'true' but current is 'false'",
    ),
    (
        "auto-delete, nowait",
        [ask.declare_queue("e.q", auto_delete=True, nowait=True)],
        CHANNEL,
        406,
        "inequivalent arg 'auto_delete' for queue 'e.q' in vhost '/': received 'true' but current is 'false'",
    ),
    ("exclusive", [ask.declare_queue("e.q", exclusive=True)], CHANNEL, 405, LOCKED.format("e.q")),
    (
        "an argument more",
        [_queue("e.q", "x-message-ttl", 5)],
        CHANNEL,
        406,
        "inequivalent arg 'x-message-ttl' for queue 'e.q' in vhost '/': received the value '5' of type 'signedint' but "
        "current is none",
    ),
    (
        "an argument less",
        [ask.declare_queue("e.ttl")],
        CHANNEL,
        406,
        "inequivalent arg 'x-message-ttl' for queue 'e.ttl' in vhost '/': received none but current is the value '5' "
        "of "
        "type 'signedint'",
    ),
    (
        "another value",
        [_queue("e.ttl", "x-message-ttl", 6)],
        CHANNEL,
        406,
        "inequivalent arg 'x-message-ttl' for queue 'e.ttl' in vhost '/': received '6' but current is '5'",
    ),
    # ours: "classic" is what a queue is of which nothing is said, as in RabbitMQ 4; 3.10: but current is none
    (
        "another type",
        [_queue("e.q", "x-queue-type", "quorum")],
        CHANNEL,
        406,
        "inequivalent arg 'x-queue-type' for queue 'e.q' in vhost '/': received 'quorum' but current is 'classic'",
    ),
    # ours, as all of a value that is none of its argument's; RabbitMQ: "expected integer, got longstr"
    (
        "no number",
        [_queue("e.new", "x-message-ttl", "5")],
        CHANNEL,
        406,
        "invalid arg 'x-message-ttl' for queue 'e.new' in vhost '/': '5'; expected is a whole number from 0 to "
        "315360000000",
    ),
    # ours; RabbitMQ: invalid_overflow
    (
        "unknown word",
        [_queue("e.new", "x-overflow", "explode")],
        CHANNEL,
        406,
        "invalid arg 'x-overflow' for queue 'e.new' in vhost '/': 'explode'; expected is one of drop-head, "
        "reject-publish, reject-publish-dlx",
    ),
    # ours; RabbitMQ: "unsupported queue type 'x'"
    (
        "unknown type",
        [ask.declare_queue("e.new", durable=True, arguments={"x-queue-type": "x"})],
        CHANNEL,
        406,
        "invalid arg 'x-queue-type' for queue 'e.new' in vhost '/': 'x'; expected is one of classic, quorum, stream",
    ),
    (
        "argument of streams",
        [_queue("e.new", "x-max-age", "1D")],
        CHANNEL,
        406,
        "invalid arg 'x-max-age' for queue 'e.new' in vhost '/' of queue type rabbit_classic_queue",
    ),
    # ours; RabbitMQ: routing_key_but_no_dlx_defined
    (
        "key for nothing",
        [_queue("e.new", "x-dead-letter-routing-key", "k")],
        CHANNEL,
        406,
        "invalid arg 'x-dead-letter-routing-key' for queue 'e.new' in vhost '/': it means nothing without "
        "x-dead-letter-exchange; set both",
    ),
    # ours: such names make lists and logs unreadable; RabbitMQ takes them
    (
        "control character",
        [ask.declare_queue("e.\x01")],
        CHANNEL,
        406,
        "queue name 'e.\\x01' has a control character in it; choose another",
    ),
    ("bind what is missing", [ask.bind_queue("nope", "e.direct", "k")], CHANNEL, 404, "no queue 'nope' in vhost '/'"),
    ("bind to what is missing", [ask.bind_queue("e.q", "nope", "k")], CHANNEL, 404, "no exchange 'nope' in vhost '/'"),
    ("bind, both missing", [ask.bind_queue("nope", "nope", "k")], CHANNEL, 404, "no exchange 'nope' in vhost '/'"),
    ("bind to default", [ask.bind_queue("e.q", "", "k")], CHANNEL, 403, DEFAULT),
    ("bind the last of none", [ask.bind_queue("", "e.direct", "k")], CHANNEL, 404, NOBODYS),
    ("unbind from default", [ask.unbind_queue("e.q", "", "k")], CHANNEL, 403, DEFAULT),
    # ours, but for the first letter and how values are written; RabbitMQ: Invalid x-match field value <<"some">>; …
    (
        "headers matched somehow",
        [ask.bind_queue("e.q", "amq.headers", "", arguments={"x-match": "some"})],
        CHANNEL,
        406,
        "invalid x-match field value 'some'; expected one of all, any, all-with-x, any-with-x",
    ),
    ("purge what is missing", [ask.purge_queue("nope")], CHANNEL, 404, "no queue 'nope' in vhost '/'"),
    ("purge the last of none", [ask.purge_queue("")], CHANNEL, 404, NOBODYS),
    ("delete the last of none", [ask.delete_queue("")], CHANNEL, 404, NOBODYS),
    (
        "delete what is not empty",
        [ask.delete_queue("e.full", if_empty=True)],
        CHANNEL,
        406,
        "queue 'e.full' in vhost '/' not empty",
    ),
    (
        "delete what is used",
        [ask.delete_queue("e.used", if_unused=True)],
        CHANNEL,
        406,
        "queue 'e.used' in vhost '/' in use",
    ),
    *[
        (f"another's, {method.name}", [method], CHANNEL, 405, LOCKED.format("e.mine"))
        for method in (
            ask.declare_queue("e.mine"),
            ask.declare_queue("e.mine", passive=True),
            ask.purge_queue("e.mine"),
            ask.delete_queue("e.mine"),
            ask.bind_queue("e.mine", "amq.direct", "k"),
            ask.consume("e.mine"),
            ask.get("e.mine"),
        )
    ],
]

CONSUMING: Final[Sequence[Row]] = [
    ("bytes limited", [BasicQos(5, 0)], CONNECTION, 540, "prefetch_size!=0 (5)"),
    (
        "tag again",
        [ask.consume("e.q", "t", nowait=True), ask.consume("e.q", "t")],
        CONNECTION,
        530,
        "attempt to reuse consumer tag 't'",
    ),
    (
        "tag again, queue missing",
        [ask.consume("e.q", "t", nowait=True), ask.consume("nope", "t")],
        CONNECTION,
        530,
        "attempt to reuse consumer tag 't'",
    ),
    ("not there", [ask.consume("nope")], CHANNEL, 404, "no queue 'nope' in vhost '/'"),
    ("the last of none", [ask.consume("")], CHANNEL, 404, NOBODYS),
    (
        "exclusive, used",
        [ask.consume("e.used", exclusive=True)],
        CHANNEL,
        403,
        "queue 'e.used' in vhost '/' in exclusive use",
    ),
    (
        "used exclusively",
        [ask.consume("e.q", "t", exclusive=True, nowait=True), ask.consume("e.q", "u")],
        CHANNEL,
        403,
        "queue 'e.q' in vhost '/' in exclusive use",
    ),
    (
        "exclusive, single active",
        [ask.consume("e.single", exclusive=True)],
        CHANNEL,
        403,
        "queue 'e.single' in vhost '/' in exclusive use",
    ),
    # ours; RabbitMQ: "expected integer, got longstr"
    (
        "priority of no sense",
        [ask.consume("e.q", arguments={"x-priority": "high"})],
        CHANNEL,
        406,
        "invalid arg 'x-priority' for queue 'e.q' in vhost '/': 'high'; expected is a whole number from -2147483648 to "
        "2147483647",
    ),
    ("get, not there", [ask.get("nope")], CHANNEL, 404, "no queue 'nope' in vhost '/'"),
    ("get, the last of none", [ask.get("")], CHANNEL, 404, NOBODYS),
    ("ack of nothing", [BasicAck(1)], CHANNEL, 406, "unknown delivery tag 1"),
    ("ack of tag 0", [BasicAck(0)], CHANNEL, 406, "unknown delivery tag 0"),
    ("ack through nothing", [BasicAck(5, multiple=True)], CHANNEL, 406, "unknown delivery tag 5"),
    ("nack of nothing", [BasicNack(3)], CHANNEL, 406, "unknown delivery tag 3"),
    ("reject of nothing", [BasicReject(3)], CHANNEL, 406, "unknown delivery tag 3"),
    ("recover without requeue", [BasicRecover(requeue=False)], CONNECTION, 540, "requeue=false"),
    ("recover-async without requeue", [BasicRecoverAsync(requeue=False)], CONNECTION, 540, "requeue=false"),
    ("flow stopped", [ChannelFlow(active=False)], CONNECTION, 540, "active=false"),
    ("confirms in tx", [TxSelect(), ConfirmSelect()], CHANNEL, 406, "cannot switch from tx to confirm mode"),
    ("tx with confirms", [ConfirmSelect(), TxSelect()], CHANNEL, 406, "cannot switch from confirm to tx mode"),
    ("commit of nothing", [TxCommit()], CHANNEL, 406, "channel is not transactional"),
    ("rollback of nothing", [TxRollback()], CHANNEL, 406, "channel is not transactional"),
]

ABOUT: Final = {_to_internal: (60, 40), _to_missing: (60, 40), _at_once: (60, 40)}
NAMES: Final = {
    403: "ACCESS_REFUSED",
    404: "NOT_FOUND",
    405: "RESOURCE_LOCKED",
    406: "PRECONDITION_FAILED",
    503: "COMMAND_INVALID",
    530: "NOT_ALLOWED",
    540: "NOT_IMPLEMENTED",
}
