"""The base of bus messages; opening a link, requests, answers, refusals, inspection."""

import functools
from typing import Any, ClassVar, Generic, TypeVar, get_args

import msgspec

Result = TypeVar("Result")
Message = TypeVar("Message")


class BusMessage(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What one process says to another."""


class Request(BusMessage, Generic[Result], frozen=True):
    """A message that is answered with a Result, or refused. It travels in a Call.

    Attributes:
        may_repeat: whether it may be sent again when the link broke before the answer came, because carrying it out
            twice has the effect of once.
        only_reads: whether carrying it out changes nothing: where that fails as nobody expected, it is refused, and the
            process that was asked goes on.
    """

    may_repeat: ClassVar[bool] = True
    only_reads: ClassVar[bool] = False


class Call(BusMessage, Generic[Message], frozen=True, tag=5):
    """A request with its number, which the reply repeats.

    Attributes:
        request: counted by whoever asks.
        message: what is asked.
    """

    request: int
    message: Message


class Answer(BusMessage, Generic[Result], frozen=True, tag=10):
    """A request was carried out."""

    request: int
    result: Result


class Refusal(BusMessage, frozen=True, tag=11):
    """A request was not carried out."""

    request: int
    code: int
    text: str


class Hello(BusMessage, frozen=True, tag=1):
    """Opens a session and names the caller. The session's number is in the envelope.

    A gateway tells a shard its broker's id, and the generation of the coordinator whose topology it routes by. Replicas
    tell their broker's id, and the format of their stores.
    """

    role: str
    name: str
    protocol: int
    broker: str = ""
    generation: int = 0


class Welcome(BusMessage, frozen=True, tag=2):
    """The session is open. Names the process that answered."""

    role: str
    name: str


class Reset(BusMessage, frozen=True, tag=3):
    """The session is unknown here, or an envelope of it was lost. The dialer opens another.

    Where it is settled, it comes behind all that was said in the session, and what was not answered was not taken in.
    """

    reason: str
    is_settled: bool = False


class Ping(BusMessage, frozen=True, tag=4):
    """Shows that the process is alive when it has nothing else to say."""


class Inspect(Request[Any], frozen=True, tag=12):
    """Ask for the process's status. Answer: a table with what `shardmq status` shows.

    With a `noun` ("connections", "channels", "consumers") a gateway answers with a list of tables, and the coordinator
    with the lists of all other gateways, joined. With a `query` a list has one table: the first of those
    that are meant, and counts.
    """

    only_reads: ClassVar[bool] = True

    noun: str = ""
    query: dict[str, Any] | None = None


def result_of(request: Request[Result], answer: Answer[msgspec.Raw]) -> Result:
    """The result of a request, decoded as the type that the request's class names.

    Raises:
        msgspec.DecodeError: the result is of another type.
    """
    result: Result = _result_decoder(type(request)).decode(answer.result)
    return result


@functools.cache
def _result_decoder(kind: type[Request[Any]]) -> "msgspec.msgpack.Decoder[Any]":
    (result,) = get_args(kind.__orig_bases__[0])  # type: ignore[attr-defined]
    return msgspec.msgpack.Decoder(result)
