"""What the processes say to one another. Typed, tagged, msgpack; the same words as the client protocol's.

    gateway → shard         ToShard          shard → gateway, coordinator    FromShard
    coordinator → shard     ToShard
    gateway → coordinator   ToCoordinator    coordinator → gateway           FromCoordinator

`request` numbers are the asking side's; `consumer` numbers are the gateway's, one for each consumer (or basic.get
client) on a link; sequence ranges are half-open [first, end) of a queue's sequence numbers.
"""

from typing import Any

import msgspec

from shardmq.model import Binding, Exchange, Queue, User
from shardmq.records import Run
from shardmq.topology import Change, Command


class Message(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One thing said."""


# --- links (link.py) -------------------------------------------------------------------------------------------------


class Hello(Message, frozen=True, tag=1):
    """Opens a session: who is calling. The session's number is in the envelope."""

    role: str
    name: str
    protocol: int


class Welcome(Message, frozen=True, tag=2):
    """The session is open: who answered."""

    role: str
    name: str


class Reset(Message, frozen=True, tag=3):
    """That session is not known here, or lost something; begin another."""

    reason: str


class Ping(Message, frozen=True, tag=4):
    """A sign of life."""


# --- asking and answering, on every link ------------------------------------------------------------------------------


class Answer(Message, frozen=True, tag=10):
    """A request was carried out."""

    request: int
    result: Any = None


class Refusal(Message, frozen=True, tag=11):
    """A request was not."""

    request: int
    code: int
    text: str


class Inspect(Message, frozen=True, tag=12):
    """How are you? Answered by a table, as `shardmq status` shows it."""

    request: int


# --- to a shard -------------------------------------------------------------------------------------------------------


class Publish(Message, frozen=True, tag=20):
    """Append a run to queues of this shard. Both sides count the publishes of a session from 1, for Confirmed."""

    queues: tuple[int, ...]
    run: Run


class Consume(Message, frozen=True, tag=21):
    """Start a consumer. `prefetch` 0 is no limit; `window` is how many bytes may be under way to it."""

    request: int
    consumer: int
    queue: int
    prefetch: int
    auto_ack: bool
    window: int


class Cancel(Message, frozen=True, tag=22):
    """Deliver no more to a consumer; what it holds stays held until settled, returned or released."""

    request: int
    consumer: int


class Release(Message, frozen=True, tag=23):
    """A consumer (or basic.get client) is gone: what it holds goes back to its place."""

    consumer: int


class Settle(Message, frozen=True, tag=24):
    """Acked: these messages are done with."""

    consumer: int
    ranges: list[tuple[int, int]]


class Return(Message, frozen=True, tag=25):
    """Not acked: back to their place, or dropped."""

    consumer: int
    ranges: list[tuple[int, int]]
    requeue: bool


class Credit(Message, frozen=True, tag=26):
    """Bytes that have reached a consumer's socket: as many more may come."""

    consumer: int
    window: int


class Qos(Message, frozen=True, tag=27):
    """A consumer's prefetch, changed."""

    request: int
    consumer: int
    prefetch: int


class Get(Message, frozen=True, tag=28):
    """One message, if there is one: Got, or an Answer of nil."""

    request: int
    consumer: int
    queue: int
    auto_ack: bool


class Purge(Message, frozen=True, tag=29):
    """Remove what is ready. Answer: how many."""

    request: int
    queue: int


class Counts(Message, frozen=True, tag=30):
    """Answer: (ready messages, consumers) of a queue."""

    request: int
    queue: int


class Assign(Message, frozen=True, tag=31):
    """These queues are yours; those you have already stay as they are. Answered once they are on disk."""

    request: int
    queues: list[Queue]


class Drop(Message, frozen=True, tag=32):
    """This queue is deleted. Answer: how many messages went with it; 0 if it is not there."""

    request: int
    queue: int


# --- from a shard -----------------------------------------------------------------------------------------------------


class Confirmed(Message, frozen=True, tag=40):
    """All publishes of this session up to number `upto` are where they should be, but for those refused before."""

    upto: int


class PublishRefusal(Message, frozen=True, tag=41):
    """Publish `number` was not taken. Sent before the Confirmed that passes it."""

    number: int
    code: int
    text: str


class Delivered(Message, frozen=True, tag=42):
    """Messages for a consumer: sequence numbers `first` to `first + run.count`."""

    consumer: int
    first: int
    redelivered: bool
    run: Run


class Got(Message, frozen=True, tag=43):
    """The message a Get asked for, and how many are ready behind it."""

    request: int
    first: int
    redelivered: bool
    run: Run
    ready: int


class Cancelled(Message, frozen=True, tag=44):
    """The consumer's queue is gone."""

    consumer: int


# --- between gateway and coordinator ----------------------------------------------------------------------------------


class Perform(Message, frozen=True, tag=60):
    """Carry out a command on the topology. Answered once every gateway that lives has seen the change."""

    request: int
    command: Command


class Synced(Message, frozen=True, tag=61):
    """This gateway routes by topology `version` from now on."""

    version: int


class Snapshot(Message, frozen=True, tag=62):
    """The whole topology; first thing a gateway is told."""

    version: int
    vhosts: list[str]
    exchanges: list[Exchange]
    queues: list[Queue]
    bindings: list[Binding]
    users: list[User]
    shards: list[str]


class Changes(Message, frozen=True, tag=63):
    """What changed from `version - 1` to `version`."""

    version: int
    changes: list[Change]


ToShard = (
    Publish
    | Consume
    | Cancel
    | Release
    | Settle
    | Return
    | Credit
    | Qos
    | Get
    | Purge
    | Counts
    | Inspect
    | Assign
    | Drop
)
FromShard = Confirmed | PublishRefusal | Delivered | Got | Cancelled | Answer | Refusal
ToCoordinator = Perform | Synced | Inspect | Answer
FromCoordinator = Snapshot | Changes | Inspect | Answer | Refusal
