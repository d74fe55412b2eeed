"""Dead letters redriven to the queues that they died in.

    reserve ─► read ─► copies in a transaction, committed ─► acknowledged … ─► the rest is released to its place

Where this process or the broker ends before the commit, no copy appears. Nothing is lost, wherever it ends: what is not
acknowledged is back when the lease of the reservation is over. A transaction is named after the messages in it, and a
name is committed once: where the request is sent again with its `id`, which names the reservation, the portion between
a commit and its acknowledgement is met again, and goes no second time.
"""

import contextlib
import hashlib
import uuid
from typing import TYPE_CHECKING, Any, Final

import msgspec

from shardmq.client.api.message import Message, properties_of_copy
from shardmq.client.api.results import Reserved
from shardmq.errors import ShardmqError
from shardmq.management.own.deaths import Chosen, chosen_by_body, last_death, text_in
from shardmq.management.own.walking import LOOKED_AT_MAX, PORTION, portions
from shardmq.management.web.call import Call, Row
from shardmq.management.web.endpoint import Answer, Endpoint, Right
from shardmq.management.web.errors import ApiError

if TYPE_CHECKING:
    from shardmq.client.aio.channel import Channel

LEASE_MS: Final = 30_000
"""After which what is reserved is back, where this process ends; begun anew with each portion."""

TRANSACTION_MS: Final = 120_000
"""After which a transaction that was left open is aborted."""

BATCH_BYTES: Final = 8 << 20
"""Of bodies in one transaction."""

ID_CHARACTERS_MAX: Final = 64


class Batch:
    """Dead letters that go together.

    Attributes:
        going: the queue that each goes to, and itself, by rising position.
        bytes: of their bodies.
    """

    def __init__(self) -> None:
        self.going: list[tuple[str, Message]] = []
        self.bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether it takes no more."""
        return len(self.going) >= PORTION or self.bytes >= BATCH_BYTES

    def add(self, target: str, message: Message) -> None:
        """Take one more."""
        self.going.append((target, message))
        self.bytes += len(message.body)

    def name(self, queue: str, user: str) -> str:
        """The name of its transaction: another one for every other batch, the same for the same."""
        digest = hashlib.blake2b(digest_size=20)
        words: list[Any] = [queue, user]
        for target, message in self.going:
            death = last_death(message) or {}
            words += [target, message.position, message.message_id, message.timestamp_ms, death.get("count")]
            words += [str(death.get("time")), len(message.body)]
            digest.update(message.body)
        digest.update(msgspec.json.encode(words))
        return f"redrive-{digest.hexdigest()}"

    def ranges(self) -> list[tuple[int, int]]:
        """Their positions, as acknowledgements name them."""
        found: list[tuple[int, int]] = []
        for _, message in self.going:
            position = message.position
            assert position is not None  # what queue_read shows has one
            if found and found[-1][1] == position:
                found[-1] = (found[-1][0], position + 1)
            else:
                found.append((position, position + 1))
        return found


class Redrive:
    """One redrive.

    Args:
        chosen: which messages.
        queues: there are, but for the one that is redriven.
        limit: messages at most.

    Attributes:
        targets: messages by the queue that they go to.
        homeless: messages whose queue is gone, or is the one that they are in; they stay.
        count: of messages that go.
    """

    def __init__(self, chosen: Chosen, queues: set[str], limit: int) -> None:
        self._chosen = chosen
        self._queues = queues
        self._limit = limit
        self.targets: dict[str, int] = {}
        self.homeless = self.count = 0

    @property
    def is_full(self) -> bool:
        """Whether the limit is reached."""
        return self.count >= self._limit

    def choose(self, messages: list[Message]) -> list[tuple[str, Message]]:
        """Those that go, each with its queue; they are counted."""
        going: list[tuple[str, Message]] = []
        for message in messages:
            if self.is_full:
                break
            if not self._chosen.has(message):
                continue
            death = last_death(message)
            target = "" if death is None else death["queue"]
            if target not in self._queues:
                self.homeless += 1
                continue
            self.targets[target] = self.targets.get(target, 0) + 1
            self.count += 1
            going.append((target, message))
        return going


class Redriving:
    """Carries out a redrive, under a reservation.

    Args:
        channel: of the caller.
        queue: with the dead letters.
        user: the caller.
        reservation: its name.
    """

    def __init__(self, channel: "Channel", queue: str, user: str, reservation: str) -> None:
        self._channel = channel
        self._queue = queue
        self._user = user
        self._reservation = reservation

    async def carry_out(self, work: Redrive) -> None:
        """Redrive what is ready now, or what is reserved already. Where that fails, the rest stays reserved."""
        if (await self._reserve()).is_acknowledged:
            return  # this one was carried out before, and nothing was left of it
        batch = Batch()
        async for messages in portions(self._channel, self._queue, self._reservation):
            for target, message in work.choose(messages):
                batch.add(target, message)
                if batch.is_full:
                    await self._move(batch)
                    batch = Batch()
            if work.is_full:
                break
        if batch.going:
            await self._move(batch)
        await self.release()

    async def release(self) -> None:
        """Have what is left return to its place."""
        await self._channel.reservation_end(self._queue, self._reservation, acknowledge=False)

    async def _reserve(self) -> Reserved:
        """Reserve, or begin the lease anew."""
        return await self._channel.queue_reserve(self._queue, self._reservation, LOOKED_AT_MAX, LEASE_MS)

    async def _move(self, batch: Batch) -> None:
        """Have all copies appear in their queues, or none; then have the messages be gone."""
        await self._reserve()
        name = batch.name(self._queue, self._user)
        async with self._channel.transaction(name, timeout_ms=TRANSACTION_MS) as transaction:
            for target, message in batch.going:
                properties = properties_of_copy(message)
                headers = {name: value for name, value in (properties.headers or {}).items() if name != "CC"}
                properties = msgspec.structs.replace(properties, headers=headers)
                await transaction.publish("", target, message.body, properties, mandatory=True)
        ranges = batch.ranges()
        await self._channel.reservation_end(self._queue, self._reservation, acknowledge=True, ranges=ranges)


def _flag(body: Row, name: str) -> bool:
    value = body.get(name, False)
    if not isinstance(value, bool):
        raise ApiError.bad_request(f"{name} is {value!r}; give true or false")
    return value


def _limit(value: Any) -> int:
    if value is None:
        return LOOKED_AT_MAX
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ApiError.bad_request(f"limit is {value!r}; give a whole number from 1 on, or none")
    return min(value, LOOKED_AT_MAX)


def _id(body: Row) -> str:
    value = text_in(body, "id")
    if len(value) > ID_CHARACTERS_MAX or not (value.isascii() and value.isprintable()):
        raise ApiError.bad_request(f"id is {value[:80]!r}; give at most {ID_CHARACTERS_MAX} characters of ASCII")
    return value


async def redrive(call: Call) -> Answer:
    """Redrive dead letters to the queues that they died in last, or say what that would do."""
    vhost, queue = await call.vhost(), call.part("queue")
    body = await call.body()
    chosen, limit, is_dry, name = chosen_by_body(body), _limit(body.get("limit")), _flag(body, "dry_run"), _id(body)
    queues = {row["name"] for row in await call.rows("queues", vhost)} - {queue}
    work = Redrive(chosen, queues, limit)
    channel = await call.channel(vhost, own=True)
    try:
        if is_dry:
            async for messages in portions(channel, queue):
                work.choose(messages)
        else:
            redriving = Redriving(channel, queue, call.user, f"redrive-{name or uuid.uuid4().hex}")
            await _carry_out(call, redriving, work, name)
    finally:
        await channel.close()
    return Answer({"dry_run": is_dry, "redriven": work.count, "without_queue": work.homeless, "targets": work.targets})


async def _carry_out(call: Call, redriving: Redriving, work: Redrive, name: str) -> None:
    """Carry it out, unless the same one is under way; where it fails, only one that has an id keeps its reservation."""
    key = (call.part("vhost"), call.part("queue"), name)
    if name and key in call.facts.redriving:
        raise ApiError(409, "conflict", f"redrive '{name}' is under way; wait for its answer")
    call.facts.redriving.add(key)
    try:
        await redriving.carry_out(work)
    except BaseException:
        if not name:
            with contextlib.suppress(ShardmqError):  # the lease ends it, and what failed is told
                await redriving.release()
        raise
    finally:
        call.facts.redriving.discard(key)


ENDPOINTS: Final = (
    Endpoint(
        "POST",
        "/shardmq/queues/{vhost}/{queue}/redrive",
        redrive,
        Right.MANAGEMENT,
        "Redrive dead letters to the queues that they died in.",
        Row,
        Row,
    ),
)
"""What this file answers."""
