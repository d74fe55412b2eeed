"""Queues: the replica filters them and orders them by what was declared, their shards by what they count."""

from collections.abc import Callable, Collection
from typing import Any, Final

from shardmq.bus.coordinator_link import Outcome, Reply
from shardmq.bus.messages.statistics import QueueStatistics, RankQueues
from shardmq.definitions.rows import policy_columns, queue_row
from shardmq.errors import InvalidRequest, NotFound, RequestError, Unavailable
from shardmq.gateway.handlers.replies import AnswerCollector
from shardmq.gateway.handlers.statistics.paging import Page, Row, name_filter
from shardmq.gateway.state.gateway import GatewayState
from shardmq.protocol.native.operations.statistics import StatsGet, StatsList
from shardmq.topology.entities import REPLY_QUEUES, Queue
from shardmq.topology.policies.matching import Policies

ANSWER_SECONDS: Final = 2.0
"""A shard that is silent for so long is left out."""

_DECLARED: Final[dict[str, Callable[[Queue], Any]]] = {
    "": lambda queue: queue.name,
    "name": lambda queue: queue.name,
    "vhost": lambda queue: queue.vhost,
    "shard": lambda queue: queue.shard,
    "durable": lambda queue: queue.durable,
    "auto_delete": lambda queue: queue.auto_delete,
    "exclusive": lambda queue: bool(queue.owner),
    "owner": lambda queue: queue.owner,
}
"""Columns that the replica orders queues by. Those of shards are the others."""

COUNTED: Final = ("counts", "rates", "idle_seconds", "dying", "reserved", "segments", "head_at", "first_unacked")
"""Columns that shards count, beside those of `queue_row`."""


def list_queues(state: GatewayState, operation: StatsList, vhosts: Collection[str], reply: Reply) -> None:
    """List queues in these virtual hosts.

    Raises:
        InvalidRequest: the filter or the page makes no sense.
    """
    topology = state.topology
    every = _in_order(state, vhosts)
    found = name_filter(operation)(every, lambda queue: queue.name)
    page = Page.of(operation, len(every), len(found))
    order = _DECLARED.get(operation.sort)
    if order is not None:
        if operation.sort not in ("", "name"):
            found.sort(key=order, reverse=operation.reverse)
        elif operation.reverse:
            found.reverse()
        _describe(state, operation, found[page.start : page.end], page, reply)
        return

    def ranked(ids: list[int]) -> None:
        there = [queue for number in ids if (queue := topology.queue_by_id(number)) is not None]
        if page.end > len(ids):  # queues of shards that are away come last
            known = set(ids)
            there += [queue for queue in found if queue.id not in known]
        _describe(state, operation, there[page.start : page.end], page, reply)

    _rank(state, operation, found, page.end, ranked, reply)


def _in_order(state: GatewayState, vhosts: Collection[str]) -> list[Queue]:
    """Queues by virtual host and name; not to be changed."""

    def make(wanted: frozenset[str]) -> list[Queue]:
        queues = state.topology.queues.values()
        found = [queue for queue in queues if queue.vhost in wanted and not queue.name.startswith(REPLY_QUEUES)]
        return sorted(found, key=lambda queue: (queue.vhost, queue.name))

    return state.orders.of("queues", frozenset(vhosts), make)


def _rank(
    state: GatewayState,
    operation: StatsList,
    queues: list[Queue],
    count: int,
    then: Callable[[list[int]], None],
    reply: Reply,
) -> None:
    """Call `then` with the ids of the first `count` queues by a column that shards count."""
    by_shard: dict[int, list[int]] = {}
    for queue in queues:
        by_shard.setdefault(queue.shard, []).append(queue.id)
    if not by_shard:
        then([])
        return
    refusals: list[RequestError] = []

    def merge(answers: list[list[tuple[int, float]]]) -> None:
        if refusals and not answers:
            reply(InvalidRequest(refusals[0].text))
            return
        names = {queue.id: (queue.vhost, queue.name) for queue in queues}
        entries = [entry for answer in answers for entry in answer]
        entries.sort(key=lambda entry: names[entry[0]])
        entries.sort(key=lambda entry: entry[1], reverse=operation.reverse)
        then([number for number, _ in entries[:count]])

    collector = AnswerCollector(len(by_shard), merge)

    def take(outcome: Outcome) -> None:
        if isinstance(outcome, RequestError) and not isinstance(outcome, Unavailable):  # queues of those come last
            refusals.append(outcome)
        collector.take(outcome)

    for shard, numbers in by_shard.items():
        question = RankQueues(numbers, operation.sort, operation.reverse, count)
        state.links[shard].look(question, take, ANSWER_SECONDS)


def _describe(state: GatewayState, operation: StatsList, queues: list[Queue], page: Page, reply: Reply) -> None:
    """Answer with the rows of these queues."""

    def join(counts: dict[int, Row]) -> None:
        reply(
            page.table(
                [_row(queue, counts.get(queue.id), state.topology.policies) for queue in queues], operation.columns
            )
        )

    if operation.with_statistics:
        count(state, queues, join)
    else:
        reply(page.table([_declared_row(queue, state.topology.policies) for queue in queues], operation.columns))


def count(
    state: GatewayState, queues: list[Queue], then: Callable[[dict[int, Row]], None], *, is_detailed: bool = False
) -> None:
    """Call `then` with what shards count of queues, by id; those of shards that are away are left out."""
    by_shard: dict[int, list[int]] = {}
    for queue in queues:
        by_shard.setdefault(queue.shard, []).append(queue.id)
    if not by_shard:
        then({})
        return
    collector = AnswerCollector(
        len(by_shard), lambda tables: then({row["id"]: row for table in tables for row in table})
    )
    for shard, numbers in by_shard.items():
        state.links[shard].look(QueueStatistics(numbers, is_detailed), collector.take, ANSWER_SECONDS)


def _row(queue: Queue, counts: Row | None, policies: Policies) -> Row:
    """A queue's row; what its shard counts is None while that is away."""
    row = queue_row(queue, counts) | policy_columns(policies.applied(queue))
    counted = counts or {}
    row["state"] = "away" if counts is None else ("out of service" if "out_of_service" in counts else "running")
    row |= {name: counted.get(name) for name in COUNTED}
    for name in ("first_offset", "next_offset", "out_of_service"):
        if name in counted:
            row[name] = counted[name]
    return row


def _declared_row(queue: Queue, policies: Policies) -> Row:
    row = queue_row(queue, None) | policy_columns(policies.applied(queue))
    return {name: value for name, value in row.items() if name not in ("messages", "ready", "unacked", "delayed")}


def get_queue(state: GatewayState, operation: StatsGet, reply: Reply) -> None:
    """Describe a queue, its consumers among the rest.

    Raises:
        NotFound: there is none of that name.
    """
    queue = state.topology.queue(operation.vhost, operation.name)
    if operation.name.startswith(REPLY_QUEUES):
        raise NotFound(f"no queue '{operation.name}' in vhost '{operation.vhost}'")

    def shape(counts: dict[int, Row]) -> None:
        counted = counts.get(queue.id)
        row = _row(queue, counted, state.topology.policies)
        row["producers"] = None if counted is None else counted.get("producers", 0)
        row["consumer_list"] = [] if counted is None else counted.get("consumer_list", [])
        reply(row)

    count(state, [queue], shape, is_detailed=True)
