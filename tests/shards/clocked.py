"""A shard inside the test's own process whose clock can be put forward, and whose queues can be read through."""

from pathlib import Path
from typing import Any

from shardmq.bus.messages.base import Answer, BusMessage, Call, Inspect, Refusal
from shardmq.bus.messages.reads import EndReservation, Read, Reserve
from shardmq.bus.messages.shard import Get, Got, Publish
from shardmq.message.record import unpack
from shardmq.message.record_batch import RecordBatch
from tests.shards.inside import Inside

EVERYTHING = 2**63 - 1
"""Behind every message's number."""

LONG_MS = 3_600_000

Seen = tuple[int, bytes, bool, int]
"""A message's number, its body, whether it was delivered before, and how often in vain."""


class Clocked(Inside):
    """A shard inside the test, with a clock that is put forward."""

    def __init__(self, folder: Path, memory_bytes: int = 20_000) -> None:
        self.requests = 1000
        self._offset_ns: int | None = None
        super().__init__(folder, memory_bytes)
        self.open()

    def open(self) -> None:
        super().open()
        if self._offset_ns is not None:
            self.loop._state.clock._offset_ns = self._offset_ns

    def put_forward(self, milliseconds: int) -> None:
        """Let time pass, and have done what is due by then."""
        self.let_pass(milliseconds)
        self.tell()

    def let_pass(self, milliseconds: int) -> None:
        """Let time pass; what is due by then is done in the next pass. A start knows of it, as a real one would."""
        clock = self.loop._state.clock
        clock._offset_ns += milliseconds * 10**6
        self._offset_ns = clock._offset_ns

    def stop(self) -> None:
        """End it as SIGTERM does, and start it again."""
        self.dialer.close()
        self.loop.stop()
        self.listener.close()
        self.store.close()
        self.inbox.clear()
        self.open()

    def do(self, kind: type[BusMessage], *fields: Any) -> Any:
        """Ask for something that is answered; a refusal fails the test."""
        answer = self._asked(kind, fields)
        assert isinstance(answer, Answer), answer
        return answer.result

    def refused(self, kind: type[BusMessage], *fields: Any) -> Refusal:
        """Ask for something that is refused."""
        answer = self._asked(kind, fields)
        assert isinstance(answer, Refusal), answer
        return answer

    def _asked(self, kind: type[BusMessage], fields: tuple[Any, ...]) -> Any:
        self.requests += 1
        request = self.requests
        self.send(Call(request, kind(*fields)))
        return self.expect(BusMessage, lambda message: getattr(message, "request", None) == request)

    def tell(self, *messages: BusMessage) -> None:
        """Say what is not answered, and have it done, and written."""
        self.send(*messages)
        self.do(Inspect)
        self.loop._buffer.demand()
        self.do(Inspect)

    def take_in(self, *batches: RecordBatch, queue: int = 1) -> None:
        """Publish them."""
        assert not self.publish(*[Publish((queue,), batch) for batch in batches])

    def get(self, consumer: int = 9, queue: int = 1, auto_ack: bool = False) -> Got | None:
        """The next message, if there is one."""
        self.requests += 1
        request = self.requests
        self.send(Call(request, Get(consumer, queue, auto_ack)))
        answer: Any = self.expect(BusMessage, lambda message: getattr(message, "request", None) == request)
        return answer if isinstance(answer, Got) else None

    def table(self, queue: int = 1) -> dict[str, Any]:
        """The status of a queue."""
        return next(table for table in self.loop.table()["queues"] if table["id"] == queue)

    def read(
        self, reservation: str = "", queue: int = 1, count: int = 1000, first: int = 0, end: int = EVERYTHING
    ) -> list[Seen]:
        """All that is ready, or reserved, page by page."""
        found: list[Seen] = []
        position: int | None = first
        while position is not None:
            deliveries, following = self.do(Read, queue, position, end, count, reservation)
            assert following is None or deliveries, "there is something where to read on"
            for number, redelivered, delivery_count, fields in deliveries:
                batch = RecordBatch(*fields)
                assert number >= position
                records = unpack(batch.records, batch.count)
                found += [
                    (number + place, record.body, redelivered, delivery_count) for place, record in enumerate(records)
                ]
                position = number + batch.count
            assert following is None or position <= following < end
            position = following
        return found

    def bodies(self, reservation: str = "", queue: int = 1) -> list[int]:
        """The numbers in the bodies of what is ready, or reserved."""
        return [int(body) for _, body, _, _ in self.read(reservation, queue)]

    def reserve(self, name: str, messages_max: int = 0, lease_ms: int = LONG_MS, queue: int = 1) -> tuple[int, bool]:
        messages, is_acknowledged = self.do(Reserve, queue, name, messages_max, lease_ms)
        return messages, is_acknowledged

    def acknowledge(self, name: str, ranges: list[tuple[int, int]] | None = None, queue: int = 1) -> int:
        count: int = self.do(EndReservation, queue, name, True, ranges or [])
        return count

    def release(self, name: str, queue: int = 1) -> int:
        count: int = self.do(EndReservation, queue, name, False, [])
        return count
