"""Parts of a batch that many consumers get."""

import msgspec

from shardmq.message.batch_parts import CommonBatch, contents_of
from shardmq.message.record import pack_many, unpack
from shardmq.message.record_batch import RecordBatch, record_ends

BODIES = [b"a", b"bb", b"ccc", b"dddd"]
COMMON = CommonBatch("ex", "key", 1, 5, 9, 70, 4, pack_many(BODIES))
ENDS = [0, *record_ends(COMMON.records, 4)]


def part(start: int, stop: int) -> RecordBatch:
    return COMMON.part(start, stop - start, ENDS[start], ENDS[stop] - ENDS[start])


def bodies(batch: RecordBatch) -> tuple[list[int], list[bytes]]:
    return [0] * batch.count, [record.body for record in unpack(bytes(batch.records), batch.count)]


def test_a_part_has_the_messages_asked_for_and_their_serials() -> None:
    for start in range(4):
        for stop in range(start + 1, 5):
            batch = part(start, stop)
            assert bodies(batch)[1] == BODIES[start:stop]
            assert (batch.serial, batch.count) == (70 + start, stop - start)
            assert (batch.exchange, batch.routing_key, batch.flags) == ("ex", "key", 1)


def test_the_whole_is_a_part_of_itself() -> None:
    assert part(0, 4) is COMMON


def test_it_is_taken_apart_once_however_many_parts_are_asked_for() -> None:
    common, times = CommonBatch("ex", "key", 1, 5, 9, 70, 4, COMMON.records), []

    def unpacked(batch: RecordBatch) -> tuple[list[int], list[bytes]]:
        times.append(batch)
        return bodies(batch)

    assert contents_of(common, unpacked)[1] == BODIES
    for start in range(4):
        assert contents_of(common.part(start, 1, ENDS[start], ENDS[start + 1] - ENDS[start]), unpacked)[1] == [
            BODIES[start]
        ]
    assert times == [common]


def test_what_is_cut_from_a_part_is_taken_apart_by_itself() -> None:
    whole = part(1, 4)
    size = ENDS[2] - ENDS[1]
    cut = msgspec.structs.replace(whole, count=1, records=whole.records[:size])
    assert contents_of(cut, bodies)[1] == [b"bb"]


def test_a_batch_of_one_consumer_is_taken_apart_as_it_is() -> None:
    alone = RecordBatch("ex", "key", 1, 5, 9, 70, 4, COMMON.records)
    assert contents_of(alone, bodies)[1] == BODIES


def test_a_part_is_sent_as_the_batch_that_it_is() -> None:
    sent = msgspec.msgpack.decode(msgspec.msgpack.encode(part(1, 3)), type=RecordBatch)
    assert (sent.count, sent.records) == (2, COMMON.records[ENDS[1] : ENDS[3]])
