"""The base of bus messages; opening a link, requests, answers, refusals, inspection."""

import functools
from typing import Any, ClassVar, Generic, TypeVar, get_args

import msgspec

Result = TypeVar("Result")
Message = TypeVar("Message")


class BusMessage(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What one process says to another."""


class Request(BusMessage, Generic[Result], frozen=True):
    """What is answered, by a Result, or refused. It travels in a Call.

    Attributes:
        may_repeat: whether it may be asked again when the link broke before the answer came: carried out twice, it has
            the effect of once.
    """

    may_repeat: ClassVar[bool] = True


class Call(BusMessage, Generic[Message], frozen=True, tag=5):
    """A request on its way, under the number that its reply has.

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
    """Opens a session: who is calling. The session's number is in the envelope.

    Gateways tell shards their broker's id, and the generation of the coordinator whose topology they route by.
    """

    role: str
    name: str
    protocol: int
    broker: str = ""
    generation: int = 0


class Welcome(BusMessage, frozen=True, tag=2):
    """The session is open: who answered."""

    role: str
    name: str


class Reset(BusMessage, frozen=True, tag=3):
    """That session is not known here, or lost something; begin another."""

    reason: str


class Ping(BusMessage, frozen=True, tag=4):
    """A sign of life."""


class Inspect(Request[Any], frozen=True, tag=12):
    """Answer: a table of how the process is, as `shardmq status` shows it.

    With a `noun` ("connections", "channels", "consumers") a gateway answers with a list of tables, and the coordinator
    with the lists of all other gateways, joined.
    """

    noun: str = ""


def result_of(request: Request[Result], answer: Answer[msgspec.Raw]) -> Result:
    """The result of a request, checked to be of the type that its class names.

    Raises:
        msgspec.DecodeError: it is of another type.
    """
    result: Result = _result_decoder(type(request)).decode(answer.result)
    return result


@functools.cache
def _result_decoder(kind: type[Request[Any]]) -> "msgspec.msgpack.Decoder[Any]":
    (result,) = get_args(kind.__orig_bases__[0])  # type: ignore[attr-defined]
    return msgspec.msgpack.Decoder(result)
