"""Ways through exchanges bound to exchanges and through alternate exchanges, against a naive model; cycles end."""

from collections.abc import Sized
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from shardmq.message.properties import Properties
from shardmq.topology.changes import (
    BindingAdded,
    BindingRemoved,
    Change,
    ExchangeAdded,
    ExchangeRemoved,
    QueueAdded,
    QueueRemoved,
    VhostPut,
    VhostRemoved,
)
from shardmq.topology.entities import Binding, Exchange, Queue, Vhost
from shardmq.topology.topology import Topology

EXCHANGES = ["a", "b", "c", "d"]
QUEUES = ["q1", "q2", "q3"]
LATE = "late"
"""An alternate exchange that is not declared at first."""
KEYS = ["k", "l", "q1"]
MESSAGE = Properties(headers={"h": 1})

exchanges = st.fixed_dictionaries(
    {
        name: st.builds(
            lambda name, kind, alternate: Exchange(
                "/", name, kind, arguments={} if alternate is None else {"alternate-exchange": alternate}
            ),
            st.just(name),
            st.sampled_from(["direct", "fanout", "headers"]),
            st.sampled_from([None, None, "", LATE, *EXCHANGES]),
        )
        for name in EXCHANGES
    }
)
to_queues = st.builds(
    Binding,
    st.just("/"),
    st.sampled_from(EXCHANGES),
    st.sampled_from(QUEUES),
    st.sampled_from(KEYS),
    st.sampled_from([{}, {"h": 1}, {"h": 2}]),
)
to_exchanges = st.builds(
    Binding,
    st.just("/"),
    st.sampled_from(EXCHANGES),
    st.sampled_from(EXCHANGES),
    st.sampled_from(KEYS),
    st.just({}),
    st.just(True),
)
bindings = st.lists(st.one_of(to_queues, to_exchanges), max_size=12, unique_by=str)


def build(declared: dict[str, Exchange], bound: list[Binding]) -> Topology:
    topology = Topology()
    changes: list[Change] = [VhostPut(Vhost("/")), *map(ExchangeAdded, declared.values())]
    changes += [QueueAdded(Queue("/", name, number, 0)) for number, name in enumerate(QUEUES)]
    for change in [*changes, *map(BindingAdded, bound)]:
        topology.apply(change)
    return topology


def naive(
    declared: dict[str, Exchange], bound: list[Binding], start: str, keys: list[str], headers: dict[str, Any]
) -> set[str]:
    """By the words of the documentation, step by step."""
    found: set[str] = set()
    seen: list[str] = []
    ahead = [start]
    while ahead:
        name = ahead.pop()
        if name in seen:
            continue
        seen.append(name)
        if name == "":
            found |= set(keys) & set(QUEUES)
            continue
        if name not in declared:
            continue
        exchange = declared[name]
        matched = [
            binding
            for binding in bound
            if binding.exchange == name
            and (
                exchange.type == "fanout"
                or (exchange.type == "direct" and binding.key in keys)
                or (exchange.type == "headers" and binding.arguments.items() <= headers.items())
            )
        ]
        found |= {binding.destination for binding in matched if not binding.to_exchange}
        ahead += [binding.destination for binding in matched if binding.to_exchange]
        if not matched and "alternate-exchange" in exchange.arguments:
            ahead.append(exchange.arguments["alternate-exchange"])
    return found


def names(queues: tuple[Queue, ...]) -> set[str]:
    assert len(queues) == len({queue.id for queue in queues})
    return {queue.name for queue in queues}


@settings(max_examples=300)
@given(exchanges, bindings, st.lists(st.sampled_from(KEYS), min_size=1, max_size=3))
def test_a_message_gets_where_the_definition_says(
    declared: dict[str, Exchange], bound: list[Binding], keys: list[str]
) -> None:
    topology = build(declared, bound)
    for start in ["", *EXCHANGES]:
        for properties, headers in ((MESSAGE, {"h": 1}), (None, {})):
            expected = naive(declared, bound, start, keys, headers)
            assert names(topology.router.route_message("/", start, keys, properties)) == expected
            if not topology.router.needs_message("/", start):
                assert names(topology.router.route("/", start, keys[0])) == naive(
                    declared, bound, start, keys[:1], headers
                )


@settings(max_examples=200)
@given(exchanges, bindings, st.data())
def test_what_is_remembered_follows_every_change(
    declared: dict[str, Exchange], bound: list[Binding], data: st.DataObject
) -> None:
    topology = build(declared, bound)
    left, queues = list(bound), dict(enumerate(QUEUES))
    for number in range(10, 16):
        assert_routes_as_anew(topology)
        what = data.draw(st.sampled_from(["unbind", "new", "exchange"]))
        if what == "unbind" and left:
            topology.apply(BindingRemoved(left.pop(data.draw(st.integers(0, len(left) - 1)))))
        elif what == "new":
            if "new" in queues.values():
                topology.apply(QueueRemoved("/", "new"))
                queues = {id: name for id, name in queues.items() if name != "new"}
            else:
                topology.apply(QueueAdded(Queue("/", "new", number, 0)))
                queues[number] = "new"
        elif what == "exchange" and ("/", LATE) in topology.exchanges:
            for binding in topology.bindings_of_exchange("/", LATE):
                topology.apply(BindingRemoved(binding))
            topology.apply(ExchangeRemoved("/", LATE))
        elif what == "exchange":
            topology.apply(ExchangeAdded(Exchange("/", LATE, "fanout")))
            topology.apply(BindingAdded(Binding("/", LATE, "q1", "")))
        assert_routes_as_anew(topology)


def assert_routes_as_anew(topology: Topology) -> None:
    fresh = Topology()
    fresh.load(topology.snapshot())
    for start in ["", *EXCHANGES]:
        needs_message = topology.router.needs_message("/", start)
        assert needs_message == fresh.router.needs_message("/", start)
        for key in [*KEYS, "new"]:
            anew = names(fresh.router.queues_reached("/", start, [key], MESSAGE))
            assert names(topology.router.queues_reached("/", start, [key], MESSAGE)) == anew
            if not needs_message:
                assert names(topology.router.route("/", start, key)) == anew


def test_what_the_broker_passes_on_may_enter_internal_exchanges_or_lead_nowhere() -> None:
    topology = build({"a": Exchange("/", "a", "fanout", internal=True)}, [Binding("/", "a", "q1", "")])
    assert names(topology.router.queues_reached("/", "a", ["k"], None)) == {"q1"}
    assert topology.router.queues_reached("/", "missing", ["k"], None) == ()


def test_a_queues_declaration_leaves_other_routes_as_they_are() -> None:
    topology = build({"a": Exchange("/", "a", "fanout")}, [Binding("/", "a", "q1", "")])
    before = topology.router.route("/", "a", "k")
    topology.apply(QueueAdded(Queue("/", "new", 50, 0)))
    assert topology.router.route("/", "a", "k") is before
    topology.apply(QueueRemoved("/", "new"))
    assert topology.router.route("/", "a", "k") is before


def test_turns_come_round_at_a_topics_exchange_bound_to_another_or_not() -> None:
    topology = build(
        {"t": Exchange("/", "t", "x-partition"), "a": Exchange("/", "a", "fanout")},
        [
            *[Binding("/", "t", name, str(number)) for number, name in enumerate(QUEUES)],
            Binding("/", "a", "t", "", {}, True),
        ],
    )
    for exchange in ("t", "a"):
        ways = [names(topology.router.route_message("/", exchange, [""], None, turn)) for turn in range(4)]
        assert ways == [{"q1"}, {"q2"}, {"q3"}, {"q1"}]


def sizes(topology: Topology) -> dict[str, int]:
    """How much there is of everything, in the topology and in its router."""
    return {
        f"{type(thing).__name__}.{name}": len(value)
        for thing in (topology, topology.router)
        for name, value in vars(thing).items()
        if isinstance(value, Sized)
    }


def test_what_is_deleted_leaves_nothing_behind() -> None:
    topology = build({}, [])
    before = sizes(topology)
    to_default = Exchange("v", "b", "fanout", arguments={"alternate-exchange": ""})
    bound = [Binding("v", "a", "q", "k"), Binding("v", "a", "b", "k", {}, True), Binding("v", "b", "a", "", {}, True)]
    topology.apply(VhostPut(Vhost("v")))
    for change in (ExchangeAdded(Exchange("v", "a", "direct")), ExchangeAdded(to_default)):
        topology.apply(change)
    topology.apply(QueueAdded(Queue("v", "q", 90, 0)))
    for binding in bound:
        topology.apply(BindingAdded(binding))
    assert names(topology.router.route("v", "b", "k")) == {"q"}
    for binding in bound:
        topology.apply(BindingRemoved(binding))
    assert topology.router.route("v", "a", "k") == ()
    for removed in (QueueRemoved("v", "q"), ExchangeRemoved("v", "a"), ExchangeRemoved("v", "b"), VhostRemoved("v")):
        topology.apply(removed)
    assert sizes(topology) == before
