"""Routes by shard, remembered: where the messages of an exchange and routing key go."""

from collections.abc import Callable, Sequence
from functools import partial
from random import randrange
from typing import Final

from shardmq.gateway.links.publishes.publish_plan import PublishPlan, SortingQueues
from shardmq.gateway.links.shard import ShardLink
from shardmq.gateway.state.traffic import Traffic
from shardmq.message.properties import Properties
from shardmq.message.record_batch import KEYED
from shardmq.protocol.native.operations.basic import BasicPublish
from shardmq.topology.arguments import QueueArguments
from shardmq.topology.entities import REPLY_QUEUES, Queue
from shardmq.topology.partitions import router_at, router_for
from shardmq.topology.policies.matching import Policies
from shardmq.topology.router import Router
from shardmq.topology.topology import Topology

ROUTES_MAX: Final = 131_072
"""Routes remembered, of some 500 bytes each; past it they are forgotten all at once, which costs less than keeping
their order of use. Who uses more in turn finds each again: 100,000 keys took 27 µs a message with half of this, and 15
with it."""

OTHERS_KNOWN_MAX: Final = 1024
"""Transactions, and steps of growth, whose routes are remembered; past it they are forgotten all at once."""


class Route(tuple[tuple[ShardLink, tuple[int, ...]], ...]):
    """Where a publish goes: shards, and the queues there.

    Attributes:
        levels: the highest priority that counts in one of the queues, 0 where none has any.
        sorts: whether every queue orders what it gets by priority, all by the same ones, and takes all of it.
        replies: the queues among them whose consumers wait for answers to their requests.
        turns: the routes that messages take in turns, where nothing in them says which partition of a topic they go to;
            None for a route, which one of these is.
    """

    levels: int
    sorts: bool
    replies: tuple[int, ...]
    turns: "RouteTurns | None"

    @staticmethod
    def to(queues: Sequence[Queue], links: Sequence[ShardLink], policies: Policies) -> "Route":
        """The route to these queues, by way of these shards."""
        by_shard: dict[int, list[int]] = {}
        for queue in queues:
            by_shard.setdefault(queue.shard, []).append(queue.id)
        effective = [policies.arguments(queue) for queue in queues]
        arguments = [QueueArguments.of(each) for each in effective if each]
        levels = {each.max_priority if each.overflow == "drop-head" else None for each in arguments}
        sorts = len(arguments) == len(queues) and len(levels) == 1 and None not in levels
        of_shard = SortingQueues if sorts else tuple[int, ...]
        route = Route((links[shard], of_shard(numbers)) for shard, numbers in by_shard.items())
        route.levels = max([each.max_priority or 0 for each in arguments], default=0)
        route.sorts = sorts
        route.turns = None
        route.replies = tuple([queue.id for queue in queues if queue.name.startswith(REPLY_QUEUES)])
        return route


class RouteTurns:
    """Routes that are taken in turns; each is found when it is first taken.

    Args:
        count: how many.
        find: called with the number of one, from 0 on.
    """

    __slots__ = ("_count", "_find", "_found", "_next")

    def __init__(self, count: int, find: Callable[[int], Route]) -> None:
        self._count = count
        self._find = find
        self._found: dict[int, Route] = {}
        self._next = randrange(count)

    def at(self, turn: int) -> Route:
        """The route whose turn it is; turns come round."""
        number = turn % self._count
        route = self._found.get(number)
        if route is None:
            route = self._found[number] = self._find(number)
        return route

    def take(self) -> Route:
        """The next route, for messages that nobody has numbered."""
        self._next += 1
        return self.at(self._next)


class Routes:
    """Finds routes in the topology, and remembers them until the topology changes.

    Args:
        topology: the gateway's replica.
        links: the shards, by number.
        traffic: where publishes are counted.
        router: that finds them; None for the topology's own.
    """

    def __init__(
        self, topology: Topology, links: Sequence[ShardLink], traffic: Traffic, router: Router | None = None
    ) -> None:
        self._topology = topology
        self._router = router
        self._links = links
        self._traffic = traffic
        self._by_key: dict[tuple[str, str, str], Route | None] = {}
        self._turns: dict[tuple[str, str, str], Route] = {}
        self._by_queues: dict[tuple[int, ...], Route] = {}
        self._plans: dict[tuple[tuple[int, ...], str, str, int, int], PublishPlan] = {}
        self._of_transactions: dict[int, Routes] = {}
        self._of_growth: dict[int, Routes] = {}

    @property
    def router(self) -> Router:
        """What finds them."""
        return self._router or self._topology.router

    def of_publish(self, publish: BasicPublish) -> "Routes":
        """The routes of a publish: topics have the partitions that they had when its transaction began.

        Outside of transactions, they have those that its publisher knew when it was sent first.
        """
        if publish.transaction:
            return self._remembered(self._of_transactions, publish.transaction, router_for)
        if publish.growth and publish.growth < self._topology.grown_to:
            return self._remembered(self._of_growth, publish.growth, router_at)
        return self

    def _remembered(self, known: "dict[int, Routes]", number: int, find: Callable[[Topology, int], Router]) -> "Routes":
        routes = known.get(number)
        if routes is None:
            router = find(self._topology, number)
            is_other = router is not self._topology.router
            routes = Routes(self._topology, self._links, self._traffic, router) if is_other else self
            if len(known) >= OTHERS_KNOWN_MAX:
                known.clear()
            known[number] = routes
        return routes

    def find(self, vhost: str, exchange: str, key: str) -> Route | None:
        """The route of an exchange and routing key; None where messages decide it (`Router.needs_message`).

        Raises:
            NotFound: no such exchange.
            AccessRefused: the exchange is internal.
        """
        place = (vhost, exchange, key)
        route = self._by_key.get(place)
        if route is not None or place in self._by_key:
            return route
        topology = self._topology
        router = self._router or topology.router
        if key and (partition := router.partition_of(vhost, exchange, key)) is not None:
            return self.to((partition,))  # not remembered: keys may all differ, and this is found as fast
        route = None
        if (vhost, exchange) not in topology.exchanges or not router.needs_message(vhost, exchange):
            turns = router.turns(vhost, exchange, key)
            if turns:
                route = self._in_turns(vhost, exchange, key, turns)
            else:
                route = self.to(router.route(vhost, exchange, key))
        if len(self._by_key) >= ROUTES_MAX:
            self._by_key.clear()
        self._by_key[place] = route
        return route

    def _in_turns(self, vhost: str, exchange: str, key: str, turns: int) -> Route:
        """The route of messages that take turns; the exchange of a topic has the same one for all keys."""
        is_topic = (vhost, exchange) in self._topology.topics
        place = vhost, exchange, "" if is_topic else key
        route = self._turns.get(place)
        if route is None:
            find = partial(self.of_message, vhost, exchange, (key,), None)
            find(0)  # raises where nobody may publish there
            route = self._turns[place] = Route.to((), self._links, self._topology.policies)
            route.turns = RouteTurns(turns, find)
        return route

    def of_message(
        self, vhost: str, exchange: str, keys: Sequence[str], properties: Properties | None, turn: int = 0
    ) -> Route:
        """The route of one message that has several routing keys, or whose properties decide.

        Where topics on the way take turns, `turn` says whose turn it is.

        Raises:
            NotFound: no such exchange.
            AccessRefused: the exchange is internal.
        """
        return self.to(self.router.route_message(vhost, exchange, keys, properties, turn))

    def to(self, queues: Sequence[Queue]) -> Route:
        """The route to these queues: the same object each time, so that neighbours with one route are seen to be."""
        ids = (queues[0].id,) if len(queues) == 1 else tuple([queue.id for queue in queues])
        route = self._by_queues.get(ids)
        if route is None:
            route = Route.to(queues, self._links, self._topology.policies)
            if len(self._by_queues) >= ROUTES_MAX:
                self._by_queues.clear()
            self._by_queues[ids] = route
        return route

    def plan(self, queues: tuple[int, ...], exchange: str, key: str, flags: int, priority: int = 0) -> PublishPlan:
        """The plan of messages for these queues of one shard: the same object each time."""
        place = (queues, exchange, key, flags, priority)
        plan = self._plans.get(place)
        if plan is None:
            if len(self._plans) >= ROUTES_MAX:
                self._plans.clear()
            common = (
                self.plan(queues, exchange, "", flags | KEYED, priority) if exchange and not flags & KEYED else None
            )
            queue = self._topology.queue_by_id(queues[0])
            tally = self._traffic.exchange("" if queue is None else queue.vhost, exchange)
            plan = PublishPlan.of(queues, exchange, key, flags, priority, common)._replace(tally=tally)
            self._plans[place] = plan
        return plan

    def forget(self) -> None:
        """Forget all routes: the topology has changed."""
        self._by_key.clear()
        self._turns.clear()
        self._by_queues.clear()
        self._plans.clear()
        self._of_transactions.clear()
        self._of_growth.clear()
