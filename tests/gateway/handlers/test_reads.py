"""The requests by which a queue is read in parallel: what shards are asked, and what is refused before; the shards are
the test's.
"""

from collections.abc import Callable
from typing import Any

import pytest

from shardmq.bus.messages.base import Answer, Refusal
from shardmq.bus.messages.reads import EndReservation, Read, Reserve, Slices
from shardmq.errors import ReplyCode
from shardmq.limits import RECORD_BATCH_RECORDS_MAX, REQUEST_BYTES_MAX, RESERVATION_MS, SLICES_MAX
from shardmq.message.record import pack_many
from shardmq.message.record_batch import PERSISTENT, RecordBatch
from shardmq.protocol.native.frames import frame
from shardmq.protocol.native.operations.codec import TYPES, encode
from shardmq.protocol.native.operations.connection import Ok, Refused
from shardmq.protocol.native.operations.fields import Operation
from shardmq.protocol.native.operations.reads import QueueRead, QueueReserve, QueueSlices, ReservationEnd
from shardmq.topology.changes import PermissionPut
from shardmq.topology.entities import Permission
from tests.gateway.rawclient import RawClient
from tests.gateway.stage import Stage

StartStage = Callable[..., Stage]
TWO = [("a", 0, {}), ("b", 1, {})]
MOST = 2**63 - 1


def asked(stage: Stage, client: RawClient, operation: Operation, kind: type[Any], answer: Any) -> tuple[Any, Any]:
    """What shard 1 is asked, but for its number; and what the client hears of its answer."""
    client.send(operation)
    message = stage.expect(1, kind)
    stage.say(1, Answer(stage.request(message), answer))
    said = client.receive()
    assert isinstance(said, Ok), said
    return tuple(getattr(message, name) for name in message.__struct_fields__), said.result


@pytest.mark.parametrize("reservation", ["", "drain-1"])
def test_slices_are_the_shards(start_stage: StartStage, reservation: str) -> None:
    stage = start_stage(TWO)
    with RawClient(stage).open() as client:
        slices = [(0, 100, 90), (100, MOST, 80)]
        operation = QueueSlices(3, 1, "b", SLICES_MAX, reservation)
        message, result = asked(stage, client, operation, Slices, slices)
        assert message == (2, SLICES_MAX, reservation)
        assert result == [list(each) for each in slices]


@pytest.mark.parametrize("following", [None, 9])
def test_what_is_read_comes_as_deliveries_with_their_numbers(start_stage: StartStage, following: int | None) -> None:
    stage = start_stage(TWO)
    records = pack_many([b"1", b"2"])
    batch = RecordBatch("e", "k", PERSISTENT, 5, 2**64 - 1, 77, 2, records)
    with RawClient(stage).open() as client:
        operation = QueueRead(3, 1, "b", 4, MOST, RECORD_BATCH_RECORDS_MAX, "drain-1")
        message, result = asked(stage, client, operation, Read, ([(7, True, 3, batch)], following))
        assert message == (2, 4, MOST, RECORD_BATCH_RECORDS_MAX, "drain-1")
        assert result == {
            "deliveries": [
                {
                    "first": 7,
                    "channel": 0,
                    "consumer": "",
                    "tag": 0,
                    "redelivered": True,
                    "exchange": "e",
                    "routing_key": "k",
                    "flags": PERSISTENT,
                    "timestamp_ms": 5,
                    "origin": 2**64 - 1,
                    "serial": 77,
                    "count": 2,
                    "records": records,
                    "deliveries": 3,
                    "offset": None,
                    "partition": None,
                }
            ],
            "next": following,
        }


def test_an_empty_range_is_nothing_to_read(start_stage: StartStage) -> None:
    stage = start_stage(TWO)
    with RawClient(stage).open() as client:
        message, result = asked(stage, client, QueueRead(3, 1, "b", 4, 4, 1), Read, ([], None))
        assert (message, result) == ((2, 4, 4, 1, ""), {"deliveries": [], "next": None})


@pytest.mark.parametrize(
    ("fields", "messages_max", "lease_ms"),
    [((), MOST, RESERVATION_MS), ((0, 0), MOST, RESERVATION_MS), ((5, 6), 5, 6), ((MOST, 2**32 - 1), MOST, 2**32 - 1)],
)
@pytest.mark.parametrize(("is_acknowledged", "state"), [(False, "held"), (True, "acknowledged")])
def test_a_reservation_takes_all_there_is_for_an_hour_unless_it_says_otherwise(
    start_stage: StartStage,
    fields: tuple[int, ...],
    messages_max: int,
    lease_ms: int,
    is_acknowledged: bool,
    state: str,
) -> None:
    stage = start_stage(TWO)
    with RawClient(stage).open() as client:
        operation = QueueReserve(3, 1, "b", "drain-1", *fields)
        message, result = asked(stage, client, operation, Reserve, (8, is_acknowledged))
        assert message == (2, "drain-1", messages_max, lease_ms, None, False)
        assert result == {"messages": 8, "state": state}


@pytest.mark.parametrize(
    ("acknowledge", "ranges"), [(True, []), (False, []), (True, [(0, 1), (1, 4), (9, MOST)])], ids=str
)
def test_a_reservation_ends_as_it_is_told_to(
    start_stage: StartStage, acknowledge: bool, ranges: list[tuple[int, int]]
) -> None:
    stage = start_stage(TWO)
    with RawClient(stage).open() as client:
        operation = ReservationEnd(3, 1, "b", "drain-1", acknowledge, ranges)
        message, result = asked(stage, client, operation, EndReservation, 12)
        assert message == (2, "drain-1", acknowledge, ranges)
        assert result == {"messages": 12}


def test_a_reservation_may_end_in_a_hundred_thousand_ranges(start_stage: StartStage) -> None:
    stage = start_stage(TWO)
    ranges = [(2 * place, 2 * place + 1) for place in range(2**40, 2**40 + 100_000)]
    with RawClient(stage).open() as client:
        operation = ReservationEnd(3, 1, "b", "drain-1", True, ranges)
        assert len(encode(operation)) > 8 * REQUEST_BYTES_MAX
        message, _ = asked(stage, client, operation, EndReservation, 1)
        assert message[-1] == ranges


@pytest.mark.parametrize(
    ("operation", "code", "text"),
    [
        (QueueSlices(3, 1, "nowhere", 1), ReplyCode.NOT_FOUND, "no queue 'nowhere'"),
        (QueueSlices(3, 1, "a", 1, "two\nlines"), ReplyCode.SYNTAX_ERROR, "control character"),
        (QueueRead(3, 1, "nowhere", 0, 1, 1), ReplyCode.NOT_FOUND, "no queue 'nowhere'"),
        (QueueRead(3, 1, "a", 0, 1, 1, "ü" * 200), ReplyCode.SYNTAX_ERROR, "over 255 bytes"),
        (QueueRead(3, 1, "a", MOST, 0, 1), ReplyCode.SYNTAX_ERROR, "ends before it begins"),
        (QueueReserve(3, 1, "nowhere", "r"), ReplyCode.NOT_FOUND, "no queue 'nowhere'"),
        (QueueReserve(3, 1, "a", ""), ReplyCode.SYNTAX_ERROR, "a reservation needs a name"),
        (QueueReserve(3, 1, "a", "\x00"), ReplyCode.SYNTAX_ERROR, "control character"),
        (ReservationEnd(3, 1, "nowhere", "r", True), ReplyCode.NOT_FOUND, "no queue 'nowhere'"),
        (ReservationEnd(3, 1, "a", "", False), ReplyCode.SYNTAX_ERROR, "a reservation needs a name"),
        (ReservationEnd(3, 1, "a", "r", True, [(1, 1)]), ReplyCode.SYNTAX_ERROR, "range [1, 1)"),
        (ReservationEnd(3, 1, "a", "r", True, [(5, 1)]), ReplyCode.SYNTAX_ERROR, "range [5, 1)"),
        (ReservationEnd(3, 1, "a", "r", True, [(1, 5), (4, 6)]), ReplyCode.SYNTAX_ERROR, "begins before 5"),
        (ReservationEnd(3, 1, "a", "r", True, [(6, MOST), (1, 2)]), ReplyCode.SYNTAX_ERROR, "begins before"),
        (ReservationEnd(3, 1, "a", "r", False, [(1, 2)]), ReplyCode.SYNTAX_ERROR, "leave them out"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Operation) else None,
)
def test_what_no_shard_need_be_asked_is_refused_and_the_channel_lives_on(
    start_stage: StartStage, operation: Operation, code: ReplyCode, text: str
) -> None:
    stage = start_stage(TWO)
    with RawClient(stage).open() as client:
        client.send(operation)
        refused = client.receive()
        assert isinstance(refused, Refused)
        assert (refused.request, refused.code) == (3, code)
        assert text in refused.text
        asked(stage, client, QueueSlices(4, 1, "b", 1), Slices, [])
        assert not any(isinstance(each, Slices | Read | Reserve | EndReservation) for each in stage.shards[0].heard)


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        (QueueSlices, b"\x94\x03\x01\xa1a\x00"),  # no slice
        (QueueSlices, b"\x94\x03\x01\xa1a\xcd\x10\x01"),  # 4097
        (QueueRead, b"\x96\x03\x01\xa1a\xff\x01\x01"),  # from -1
        (QueueRead, b"\x96\x03\x01\xa1a\x00\xcf" + b"\xff" * 8 + b"\x01"),  # 64 bits
        (QueueRead, b"\x96\x03\x01\xa1a\x00\x01\x00"),  # no message
        (QueueRead, b"\x96\x03\x01\xa1a\x00\x01\xce\x00\x01\x00\x01"),  # 65,537
        (QueueReserve, b"\x93\x03\x01\xa1a"),  # no name
        (QueueReserve, b"\x96\x03\x01\xa1a\xa1r\x00\xcf" + b"\x00\x00\x00\x01" + b"\x00" * 4),  # 2^32 ms
        (ReservationEnd, b"\x95\x03\x01\xa1a\xa1r\x01"),  # 1 for true
        (ReservationEnd, b"\x96\x03\x01\xa1a\xa1r\xc3\x91\x91\x01"),  # half a range
        (ReservationEnd, b"\x96\x03\x01\xa1a\xa1r\xc3\x91\x92\xff\x01"),  # from -1
        (ReservationEnd, b"\x96\x03\x01\xa1a\xa1r\xc3\x91\x92\x01\xcf" + b"\xff" * 8),  # 64 bits
    ],
)
def test_what_is_no_such_request_closes_the_connection(
    start_stage: StartStage, kind: type[Operation], payload: bytes
) -> None:
    with RawClient(start_stage(TWO)).open() as client:
        client.socket.sendall(frame(TYPES[kind], payload))
        assert kind.__name__ in client.expect_close(ReplyCode.SYNTAX_ERROR)


@pytest.mark.parametrize(
    "operation",
    [
        QueueSlices(3, 1, "b", 1),
        QueueRead(3, 1, "b", 0, 1, 1),
        QueueReserve(3, 1, "b", "r"),
        ReservationEnd(3, 1, "b", "r", True),
    ],
    ids=lambda operation: type(operation).__name__,
)
def test_all_of_them_take_the_permission_to_read_the_queue(start_stage: StartStage, operation: Operation) -> None:
    stage = start_stage(TWO)
    with RawClient(stage).open() as client:
        stage.tell(PermissionPut(Permission("guest", "/", ".*", ".*", "^a$")))
        client.send(operation)
        refused = client.receive()
        assert isinstance(refused, Refused)
        assert (refused.code, refused.text) == (
            ReplyCode.ACCESS_REFUSED,
            "read access to queue 'b' in vhost '/' refused for user 'guest'",
        )


@pytest.mark.parametrize(
    ("operation", "kind"),
    [
        (ReservationEnd(3, 1, "b", "r", True), EndReservation),
        (QueueSlices(3, 1, "b", 1, "r"), Slices),
        (QueueRead(3, 1, "b", 0, 1, 1, "r"), Read),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else None,
)
def test_that_nothing_is_reserved_under_a_name_is_said_at_once(
    start_stage: StartStage, operation: Operation, kind: type[Any]
) -> None:
    stage = start_stage(TWO)
    with RawClient(stage).open() as client:
        client.send(operation)
        stage.say(1, Refusal(stage.request(stage.expect(1, kind)), ReplyCode.NOT_FOUND, "no reservation 'r'"))
        assert client.receive() == Refused(3, 1, ReplyCode.NOT_FOUND, "no reservation 'r'")


@pytest.mark.parametrize(
    ("operation", "kind", "answer"),
    [(QueueSlices(3, 1, "b", 1), Slices, []), (QueueReserve(3, 1, "b", "r"), Reserve, (0, False))],
    ids=lambda value: value.__name__ if isinstance(value, type) else None,
)
def test_a_shard_that_does_not_know_the_queue_yet_is_asked_again(
    start_stage: StartStage, operation: Operation, kind: type[Any], answer: Any
) -> None:
    stage = start_stage(TWO)
    with RawClient(stage).open() as client:
        client.send(operation)
        stage.say(1, Refusal(stage.request(stage.expect(1, kind)), ReplyCode.NOT_FOUND, "no queue 2"))
        stage.say(1, Answer(stage.request(stage.expect(1, kind)), answer))
        assert isinstance(client.receive(), Ok)


def test_what_the_shard_refuses_is_refused(start_stage: StartStage) -> None:
    stage = start_stage(TWO)
    with RawClient(stage).open() as client:
        client.send(ReservationEnd(3, 1, "b", "r", True))
        message = stage.expect(1, EndReservation)
        stage.say(1, Refusal(stage.request(message), ReplyCode.PRECONDITION_FAILED, "no reservation 'r'"))
        assert client.receive() == Refused(3, 1, ReplyCode.PRECONDITION_FAILED, "no reservation 'r'")
