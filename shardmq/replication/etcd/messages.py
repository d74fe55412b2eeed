"""Requests and answers of etcd's JSON gateway (`/v3/…`), without I/O.

JSON as protocol buffers have it: bytes are base64, 64-bit numbers are strings, and what has its default is left out.
Source: etcd's api/etcdserverpb/rpc.proto.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar

import msgspec

Answer_co = TypeVar("Answer_co", covariant=True)


class Header(msgspec.Struct, frozen=True):
    """What all answers begin with.

    Attributes:
        revision: of the whole store, as of which an answer is.
        member_id: who answered.
        raft_term: etcd's own.
    """

    revision: int = 0
    member_id: int = 0
    raft_term: int = 0


NO_HEADER: Final = Header()


class KeyValue(msgspec.Struct, frozen=True):
    """A key and what is known of it.

    Attributes:
        key: its name.
        value: its bytes.
        create_revision: when it was made.
        mod_revision: when it was last written; for a deletion, when that was.
        version: how often it has been written since it was made.
    """

    key: bytes
    value: bytes = b""
    create_revision: int = 0
    mod_revision: int = 0
    version: int = 0


class RangeAnswer(msgspec.Struct, frozen=True):
    """Keys in a range.

    Attributes:
        kvs: those asked for, by key.
        count: how many there are in the range, filters aside.
        more: whether `kvs` was cut short.
        header: as of when.
    """

    kvs: list[KeyValue] = []
    count: int = 0
    more: bool = False
    header: Header = NO_HEADER


class PutAnswer(msgspec.Struct, frozen=True):
    """A key was written; the header's revision is its own now."""

    header: Header = NO_HEADER


class TxnPart(msgspec.Struct, frozen=True):
    """The answer to one operation of a transaction."""

    response_range: RangeAnswer | None = None
    response_put: PutAnswer | None = None


class TxnAnswer(msgspec.Struct, frozen=True):
    """A transaction was carried out.

    Attributes:
        succeeded: whether all comparisons held.
        responses: one for each operation of the branch that was taken.
        header: as of when.
    """

    succeeded: bool = False
    responses: list[TxnPart] = []
    header: Header = NO_HEADER


class AuthenticateAnswer(msgspec.Struct, frozen=True):
    """A login succeeded."""

    token: str
    header: Header = NO_HEADER


class Event(msgspec.Struct, frozen=True):
    """A key was written or deleted."""

    kv: KeyValue
    type: Literal["PUT", "DELETE"] = "PUT"


class WatchAnswer(msgspec.Struct, frozen=True):
    """One message of a watch.

    Attributes:
        created: whether it is the first.
        canceled: whether it is the last.
        compact_revision: where the watch began before what etcd still has: the oldest revision that can be watched.
        cancel_reason: why etcd ended it.
        events: what happened, in order; none where etcd only says that it is alive.
        header: as of when.
    """

    created: bool = False
    canceled: bool = False
    compact_revision: int = 0
    cancel_reason: str = ""
    events: list[Event] = []
    header: Header = NO_HEADER


@dataclass(frozen=True)  # with slots, Python 3.11 cannot make `Request[…](…)`
class Request(Generic[Answer_co]):
    """One request.

    Attributes:
        path: of the gateway.
        body: JSON.
        answer: the type of its answer.
        is_change: whether it may change anything, so that it must not be sent twice.
    """

    path: str
    body: bytes
    answer: type[Answer_co]
    is_change: bool = False


class Range(NamedTuple):
    """Keys to be read.

    Attributes:
        key: the first one.
        end: behind the last one; empty for one key.
        since_revision: only what was written in this revision or later.
    """

    key: bytes
    end: bytes = b""
    since_revision: int = 0


def prefix_end(prefix: bytes) -> bytes:
    """The end of the range of all keys that begin with a prefix; etcd's zero byte where there is no end."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else b"\0"


def range_request(key: bytes, end: bytes = b"") -> Request[RangeAnswer]:
    """Read a key, or all keys of [key, end), as of the newest revision that a majority has.

    Args:
        key: the first one.
        end: behind the last one; empty for one key.
    """
    return Request("/v3/kv/range", _json(_range(Range(key, end))), RangeAnswer)


def ranges_request(ranges: Sequence[Range]) -> Request[TxnAnswer]:
    """Read several ranges, all as of the same revision, which the header of the whole answer has."""
    return Request("/v3/kv/txn", _json({"success": [{"request_range": _range(each)} for each in ranges]}), TxnAnswer)


def put_request(key: bytes, value: bytes) -> Request[PutAnswer]:
    """Write a key, whatever it is now."""
    return Request("/v3/kv/put", _json({"key": key, "value": value}), PutAnswer, is_change=True)


def swap_request(key: bytes, value: bytes, revision: int) -> Request[TxnAnswer]:
    """Write a key if it was last written in this revision, 0 for a key that is not there; else read it."""
    return _guarded(key, revision, [{"request_put": {"key": key, "value": value}}])


def delete_request(key: bytes, revision: int) -> Request[TxnAnswer]:
    """Delete a key if it was last written in this revision; else read it."""
    return _guarded(key, revision, [{"request_delete_range": {"key": key}}])


def watch_request(key: bytes, end: bytes, start_revision: int) -> Request[WatchAnswer]:
    """Be told of all that happens to the keys of [key, end) from a revision on; now and then of nothing."""
    create = {"key": key, "range_end": end, "start_revision": str(start_revision), "progress_notify": True}
    return Request("/v3/watch", _json({"create_request": create}), WatchAnswer)


def authenticate_request(user: str, password: str) -> Request[AuthenticateAnswer]:
    """Log in."""
    return Request("/v3/auth/authenticate", _json({"name": user, "password": password}), AuthenticateAnswer)


def _guarded(key: bytes, revision: int, success: Sequence[dict[str, object]]) -> Request[TxnAnswer]:
    compare = {"key": key, "target": "MOD", "result": "EQUAL", "mod_revision": str(revision)}
    body = {"compare": [compare], "success": success, "failure": [{"request_range": _range(Range(key))}]}
    return Request("/v3/kv/txn", _json(body), TxnAnswer, is_change=True)


def _range(what: Range) -> dict[str, object]:
    asked: dict[str, object] = {"key": what.key}
    if what.end:
        asked["range_end"] = what.end
    if what.since_revision:
        asked["min_mod_revision"] = str(what.since_revision)
    return asked


def _json(body: dict[str, Any]) -> bytes:
    return msgspec.json.encode(body)
