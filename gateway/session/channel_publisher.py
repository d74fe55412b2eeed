"""A channel's publishes and confirms: messages are routed and sent on, and confirmed at the end of a pass."""

from collections.abc import Sequence
from random import getrandbits
from typing import Final

from msgspec.structs import replace

from shardmq.bus.messages.shard import Publish
from shardmq.errors import InvalidRequest, PreconditionFailed, RequestError
from shardmq.gateway.links.publishes.fan_out import FanOut, FanOutOfMany
from shardmq.gateway.links.publishes.publish_plan import PublishPlan
from shardmq.gateway.links.shard import ShardLink
from shardmq.gateway.session.client import Client
from shardmq.gateway.session.publish_split import PublishPart, PublishSplitter, is_uniform
from shardmq.gateway.state.routes import Route, Routes, RouteTurns
from shardmq.gateway.state.turns import TURN_BITS, turn_of_keyed, turns_of
from shardmq.limits import FRAMED_PRODUCERS, KEYED_NUMBERS, NAME_BYTES_MAX
from shardmq.message.record import Record
from shardmq.message.record_batch import KEYED, MANDATORY, PERSISTENT, RecordBatch
from shardmq.protocol.native.operations.basic import BasicPublish

PLANS_MAX: Final = 4096
"""Plans remembered for each channel; past it all are forgotten."""

SHORT_KEY: Final = NAME_BYTES_MAX // 4
"""A key of so many characters is short enough, whatever they are."""


def _in_turn(turns: RouteTurns, publish: BasicPublish) -> Route | None:
    """The route of a publish whose messages take turns; None where they do not all take the same one."""
    if not publish.producer:
        return turns.take()
    taken = turns_of(publish)
    return turns.at(taken[0][2]) if len(taken) == 1 else None


def _check_key(key: str) -> None:
    """Make sure that a routing key is no longer than AMQP has them: every protocol's consumers get it.

    Raises:
        InvalidRequest: it is longer.
    """
    if len(key) > SHORT_KEY and len(key.encode()) > NAME_BYTES_MAX:
        raise InvalidRequest(f"routing key '{key[:32]}…' is over {NAME_BYTES_MAX} bytes of UTF-8; use a shorter one")


class ChannelPublisher:
    """The publishing half of a channel. The channel and its front call it; shard links confirm to it.

    Args:
        client: whose channel it is.
        number: of the channel.

    Attributes:
        is_open: whether the channel is.
        is_confirming: whether the client is to hear of confirms.
        published: messages that came, where the front does not count them (`ClientConnection.published`).
        unroutable: messages among all that had nowhere to go.
        returned: those of them that were returned.
        confirmed: publishes that were confirmed.
        more_confirmed: messages of them beside the first of each.
        before_confirms: messages that were published before the client asked for confirms.
    """

    __slots__ = (
        "_confirmed",
        "_plans",
        "_plans_of",
        "before_confirms",
        "client",
        "confirmed",
        "is_confirming",
        "is_open",
        "more_confirmed",
        "number",
        "published",
        "returned",
        "unroutable",
    )

    def __init__(self, client: Client, number: int) -> None:
        self.client = client
        self.number = number
        self.is_open = self.is_confirming = True
        self.published = self.unroutable = self.returned = self.confirmed = self.more_confirmed = 0
        self.before_confirms = 0
        self._confirmed: list[tuple[int, int]] = []
        self._plans: dict[tuple[str, str, int], tuple[ShardLink, PublishPlan]] = {}
        self._plans_of = 0  # the topology they were made of

    def publish(self, publish: BasicPublish, records: Sequence[Record] | None = None) -> None:
        """Route messages that were checked and send them on; answered by `confirm` or `refuse`.

        Args:
            publish: the messages.
            records: them decoded, where some have properties.
        """
        client = self.client
        state = client.state
        state.changed()  # before all else: it notes the time of this pass
        exchange, key, request, count = publish.exchange, publish.routing_key, publish.request, publish.count
        self.published += count
        is_plain = not (publish.delay_ms or publish.transaction or publish.producer == 0 or records is not None)
        is_plain = is_plain and not 0 < publish.growth < state.topology.grown_to
        if is_plain and state.firehose is None and (planned := self._known_plan(publish)) is not None:
            link, plan = planned
            plan.tally.count(count, len(plan.queues))
            if link.publish_numbered(self, request, plan, (count, publish.records, publish.producer, publish.sequence)):
                client.front.hold_publishing(link)
            return
        try:
            _check_key(key)
            client.permissions.check_write(exchange)
            client.permissions.check_topic("write", exchange, key)
            if publish.transaction:
                client.check_staging(publish.transaction, publish.producer, publish.sequence + count)
            route = self._routes(publish).find(client.vhost, exchange, key)
            is_plain = is_plain and route is not None and route.turns is None
            route = route if route is None or route.turns is None else _in_turn(route.turns, publish)
            if route is None or (records is not None and not is_uniform(records)):
                self._publish_parts(publish, records)
                return
        except RequestError as error:
            self.refuse(request, request, error.code, error.text)
            return
        batch = RecordBatch(exchange, key, publish.flags & PERSISTENT, 0, 0, 0, count, publish.records)
        producer, sequence = publish.producer, publish.sequence
        delay_ms, transaction = publish.delay_ms, publish.transaction
        self._take(batch, route)
        if len(route) == 1:
            ((link, queues),) = route
            if is_plain:
                self._plan(publish, link, queues)
            going = Publish(queues, batch, producer, sequence, delay_ms, transaction)
            if link.publish(self, request, going, None, 0, False):
                client.front.hold_publishing(link)
            return
        state.stamp(batch)
        if not route:
            if publish.flags & MANDATORY:
                self.returned += count
                client.front.send_return(self.number, request, batch)
            self.more_confirmed += count - 1
            self.confirm([(request, request)])
            return
        fan_out = FanOut(len(route), count)
        for link, queues in route:  # a batch for each, as links fill theirs up
            going = Publish(queues, replace(batch), producer, sequence, delay_ms, transaction)
            if link.publish(self, request, going, fan_out, 0, False):
                client.front.hold_publishing(link)

    def _known_plan(self, publish: BasicPublish) -> tuple[ShardLink, PublishPlan] | None:
        """How messages like these go, if that is known: what was found once holds until the topology changes."""
        state = self.client.state
        if self._plans_of != state.topology_changes:
            self._plans.clear()
            self._plans_of = state.topology_changes
        return self._plans.get((publish.routing_key, publish.exchange, publish.flags))

    def _routes(self, publish: BasicPublish) -> Routes:
        """The routes of a publish."""
        return self.client.state.routes.of_publish(publish)

    def _plan(self, publish: BasicPublish, link: ShardLink, queues: tuple[int, ...]) -> None:
        """Remember how messages like these go."""
        exchange, key, flags = publish.exchange, publish.routing_key, publish.flags
        if len(self._plans) >= PLANS_MAX:
            self._plans.clear()
        plan = self.client.state.routes.plan(queues, exchange, key, flags & PERSISTENT)
        self._plans[key, exchange, flags] = link, plan

    def send(self, first: int, batch: RecordBatch, route: Route) -> None:
        """Send messages on, each of them a publish of its own; answered by `confirm` or `refuse`.

        Args:
            first: the first one's number; the others follow.
            batch: the messages; time, origin and serial are not written into it yet.
            route: where they go; nowhere, and they are confirmed.
        """
        client = self.client
        client.state.changed()
        self._count(batch.exchange, batch.count, route)
        if route.replies and self._answer(first, batch, route):
            return
        if len(route) == 1:
            ((link, queues),) = route
            if link.publish(self, first, Publish(queues, batch), None, 0, True):
                client.front.hold_publishing(link)
            return
        last = first + batch.count - 1
        if not route:
            self.confirm([(first, last)])
            return
        if not batch.serial:
            client.state.stamp(batch)
        fan_out = FanOutOfMany(len(route), last)
        for link, queues in route:
            if link.publish(self, first, Publish(queues, replace(batch)), fan_out, 0, False):
                client.front.hold_publishing(link)

    def _take(self, batch: RecordBatch, route: Route) -> None:
        """Count messages that go that way, and copy them to those who trace them."""
        self._count(batch.exchange, batch.count, route)
        if self.client.state.firehose is not None:
            self.client.state.firehose.published(self.client, self.number, batch, route)

    def _count(self, exchange: str, messages: int, route: Route) -> None:
        """Count messages that were published to an exchange, and go that way."""
        if not route:
            self.unroutable += messages
        queues = sum([len(numbers) for _, numbers in route])
        self.client.state.traffic.exchange(self.client.vhost, exchange).count(messages, queues)

    def _answer(self, first: int, batch: RecordBatch, route: Route) -> bool:
        """Deliver answers to requests of this gateway's clients; returns whether that is all there is to do."""
        state = self.client.state
        state.stamp(batch)
        is_alone = len(route) == 1 and len(route[0][1]) == 1
        is_direct = state.replies.deliver(route.replies, batch, is_alone)
        if is_direct:
            self.confirm([(first, first + batch.count - 1)])
        return is_direct

    def _publish_parts(self, publish: BasicPublish, records: Sequence[Record] | None) -> None:
        """Send on a publish whose messages differ in what the broker looks at, in parts.

        Raises:
            RequestError: one of the messages cannot be published; none was.
        """
        client, state = self.client, self.client.state
        exchange, key, producer = publish.exchange, publish.routing_key, publish.producer
        may_sort = not publish.transaction and (not producer or producer >= FRAMED_PRODUCERS)
        routes = self._routes(publish)
        splitter = PublishSplitter(state, routes, client.vhost, client.user, exchange, key, may_sort)
        turns = turns_of(publish) if producer else [(0, publish.count, getrandbits(TURN_BITS))]
        if len(turns) > 1 and not routes.router.turns(client.vhost, exchange, key):
            turns = turns[:1]
        parts = splitter.split_in_turns(publish, records, turns)
        self._send_parts(publish, [part._replace(key=key) for part in parts], 0)

    def publish_keyed(self, publish: BasicPublish, keys: Sequence[str], records: Sequence[Record] | None) -> None:
        """Route messages with keys of their own, which were checked, and send them on; answered as by `publish`.

        Args:
            publish: the messages.
            keys: of each.
            records: them decoded, where some have properties.
        """
        client, producer = self.client, publish.producer
        client.state.changed()
        self.published += publish.count
        try:
            client.permissions.check_write(publish.exchange)
            client.permissions.check_topics("write", publish.exchange, keys)
            if publish.transaction:
                end = publish.sequence + publish.count * KEYED_NUMBERS
                client.check_staging(publish.transaction, producer, end)
            elif 0 < producer < FRAMED_PRODUCERS:
                raise PreconditionFailed(
                    f"producer {producer} may send again in other frames; it publishes messages of one key at a time"
                )
            turn, routes = turn_of_keyed(publish), self._routes(publish)
            splitter = PublishSplitter(
                client.state, routes, client.vhost, client.user, publish.exchange, "", True, turn
            )
            parts, base = splitter.split_keyed(publish, keys, records)
        except RequestError as error:
            self.refuse(publish.request, publish.request, error.code, error.text)
            return
        self._send_parts(publish, parts, base)

    def _send_parts(self, publish: BasicPublish, parts: Sequence[PublishPart], base: int) -> None:
        """Send on the parts of a publish; to the producer's numbers of its messages, `base` is added."""
        state, front, request = self.client.state, self.client.front, publish.request
        fan_out = FanOut(sum(len(part.route) for part in parts), publish.count)
        first = state.next_serial
        state.next_serial = first + sum(part.messages for part in parts)
        for part in parts:
            batch = RecordBatch(
                publish.exchange,
                part.key or "",
                publish.flags & PERSISTENT | (KEYED if part.key is None else 0),
                state.now_ms,
                state.origin,
                first + part.offset,
                part.messages,
                part.records,
                part.priority,
                part.ttl_ms,
            )
            self._take(batch, part.route)
            if not part.route and publish.flags & MANDATORY:
                self.returned += part.messages
                front.send_return(self.number, request, batch)
            sequence = publish.sequence + base + part.offset if publish.producer else 0
            for link, queues in part.route:
                going = Publish(
                    queues, replace(batch), publish.producer, sequence, publish.delay_ms, publish.transaction
                )
                if link.publish(self, request, going, fan_out, part.certain, False):
                    front.hold_publishing(link)
        if not fan_out.remaining and fan_out.refusal is None:
            self.more_confirmed += publish.count - 1
            self.confirm([(request, request)])

    def confirm(self, requests: list[tuple[int, int]]) -> None:
        """Confirm publishes, ranges with both ends included: the client hears of it at the end of the pass.

        Not once the channel is closed: its number may be another one's by then, whose publishes have the same numbers.
        """
        if not (self.is_open and self.is_confirming):
            return
        if not self._confirmed:
            self.client.front.confirms_due(self)
        self._confirmed += requests

    def take_confirms(self) -> list[tuple[int, int]]:
        """Take the confirms gathered since the last call, in rising order."""
        confirmed, self._confirmed = self._confirmed, []
        if len(confirmed) < 2:
            self.confirmed += sum([last + 1 - first for first, last in confirmed])
            return confirmed
        confirmed.sort()
        first, last = confirmed[0][0], confirmed[-1][1]
        if last - first + 1 == len(confirmed):  # each comes once
            self.confirmed += len(confirmed)
            return [(first, last)]
        joined: list[tuple[int, int]] = []
        count, last = 0, confirmed[0][1]
        for start, end in confirmed:
            if start > last + 1:
                joined.append((first, last))
                count += last - first
                first = start
            last = end
        joined.append((first, last))
        self.confirmed += count + last - first + len(joined)
        return joined

    def refuse(self, first: int, last: int, code: int, text: str, taken: int = 0) -> None:
        """Refuse publishes `first` to `last`; where it is one, its first `taken` messages are stored."""
        if self.is_open:
            self.client.front.send_refusal(self.number, first, last, code, text, taken)
