"""The broker summed up: what queues hold, how much flows, what there is, who is there, what is wrong."""

from collections.abc import Collection
from typing import Any, Final

from shardmq.bus.coordinator_link import Reply
from shardmq.bus.messages.statistics import ShardStatistics
from shardmq.gateway.handlers.replies import AnswerCollector
from shardmq.gateway.handlers.statistics.entities import in_order
from shardmq.gateway.state.gateway import GatewayState
from shardmq.gateway.state.traffic import CHANNEL_COUNTS
from shardmq.topology.passwords import is_weak

Row = dict[str, Any]

ANSWER_SECONDS: Final = 2.0
"""A process that is silent for so long is left out."""

_SUMMED: Final = ("vhosts", "flow")
"""Of a process's table, what is summed up instead of being shown."""

OF_QUEUES_ALONE: Final = ("expire", "drop", "dead_letter")
"""What queues count, and channels do not."""

CREATED: Final = ("queues_created", "queues_deleted")
"""What the coordinator counts."""


def sum_up(state: GatewayState, vhosts: Collection[str], sees_all: bool, is_detailed: bool, reply: Reply) -> None:
    """Sum up these virtual hosts, and with `sees_all` the processes of the broker.

    Args:
        state: of the gateway that was asked.
        vhosts: those that are summed up.
        sees_all: whether the user may see processes, alarms and what all clients have.
        is_detailed: whether processes are to tell what they measure of themselves.
        reply: called once.
    """

    def join(tables: list[Row]) -> None:
        processes: list[Row] = []
        for table in tables:
            processes.append(table)
            processes += table.pop("others", ())
        shards = [table for table in processes if table["role"] == "shard"]
        result = {
            "queue_totals": _queue_totals(shards, vhosts),
            **_flow(processes, vhosts),
            "churn": _churn(processes),
            "away": [link.name for link in state.links if not link.is_open],
            "silent": sorted({link.name for link in state.links} - {_shard_of(table) for table in shards}),
            "object_totals": _object_totals(state, processes, vhosts),
            "vhosts": {
                vhost: {**_queue_totals(shards, (vhost,)), "flow": _flow(processes, (vhost,))} for vhost in vhosts
            },
        }
        if sees_all:
            result["listeners"] = _listeners(processes)
            result["weak_passwords"] = sorted(
                [user.name for user in state.topology.users.values() if is_weak(user.password)]
            )
            result["alarms"] = sorted({text for table in processes for text in table.get("alarms", ())})
            shown = [{name: table[name] for name in table if name not in _SUMMED} for table in processes]
            if state.primaries is not None:
                result |= state.primaries.standing(shown)
            result["processes"] = sorted(shown, key=lambda row: (row["role"], len(row["process"]), row["process"]))
        reply(result)

    collector = AnswerCollector(len(state.links) + 2, join)
    query = {"is_detailed": is_detailed}
    collector.take(state.coordinator.lists("overview", query)[0])
    state.coordinator.inspect(collector.take, ANSWER_SECONDS, "overview", query)
    for link in state.links:
        link.look(ShardStatistics(is_detailed), collector.take, ANSWER_SECONDS)


def _shard_of(table: Row) -> str:
    """The name of a shard that answered, without the host that its process is on: `shard-0` of `a.shard-0`."""
    return str(table["process"]).rpartition(".")[2]


def _sum(tables: list[Row]) -> Row:
    """Numbers by name, added up."""
    sums: Row = {}
    for table in tables:
        for name, number in table.items():
            sums[name] = sums.get(name, 0) + number
    return sums


def _rounded(table: Row) -> Row:
    return {name: round(value, 3) for name, value in table.items()}


def _of_vhosts(shards: list[Row], vhosts: Collection[str]) -> list[Row]:
    return [row for shard in shards for vhost, row in shard["vhosts"].items() if vhost in vhosts]


def _queue_totals(shards: list[Row], vhosts: Collection[str]) -> Row:
    rows = _of_vhosts(shards, vhosts)
    ready, unacked = (sum([row[name] for row in rows]) for name in ("ready", "unacked"))
    rates = _sum([row["rates"] for row in rows if "rates" in row])
    ready_rate, unacked_rate = rates.get("ready", 0.0), rates.get("unacked", 0.0)
    return {
        "messages": ready + unacked,
        "ready": ready,
        "unacked": unacked,
        "rates": _rounded({"messages": ready_rate + unacked_rate, "ready": ready_rate, "unacked": unacked_rate}),
    }


def _flow(processes: list[Row], vhosts: Collection[str]) -> Row:
    """What channels count, and what queues count beside: `counts` and `rates`."""
    shards = [table for table in processes if table["role"] == "shard"]
    queues = [row for row in _of_vhosts(shards, vhosts) if "counts" in row]
    channels = [row for table in processes for vhost in vhosts for row in table.get("flow", {}).get(vhost, ())]
    flow = {}
    for kind in ("counts", "rates"):
        of_queues = _sum([row[kind] for row in queues])
        of_channels = dict.fromkeys(CHANNEL_COUNTS, 0) | _sum([row[kind] for row in channels])
        flow[kind] = _rounded({**{name: of_queues.get(name, 0) for name in OF_QUEUES_ALONE}, **of_channels})
    return flow


def _churn(processes: list[Row]) -> Row:
    """What came and went: `counts` and `rates`."""
    gateways = [table["churn"] for table in processes if "churn" in table]
    made = _sum([{name: table[name] for name in CREATED if name in table} for table in processes])
    return {
        "counts": {**_sum([churn["counts"] for churn in gateways]), **made},
        "rates": _rounded(_sum([churn["rates"] for churn in gateways])),
    }


def _object_totals(state: GatewayState, processes: list[Row], vhosts: Collection[str]) -> Row:
    topology = state.topology
    of_clients = [table["clients"] for table in processes if table["role"] == "gateway"]
    return {
        "queues": sum([queue.vhost in vhosts for queue in topology.queues.values()]),
        "exchanges": len(in_order(state, "exchanges", vhosts)),
        "bindings": sum([binding.vhost in vhosts for binding in topology.bindings.values()]),
        "topics": sum([topic.vhost in vhosts for topic in topology.topics.values()]),
        **{name: sum([clients[name] for clients in of_clients]) for name in ("connections", "channels", "consumers")},
    }


def _listeners(processes: list[Row]) -> list[Row]:
    listeners: list[Row] = []
    for table in processes:
        for protocol, name in (("amqp", "port"), ("amqp/ssl", "tls_port")):
            if table.get(name):
                listeners.append({"process": table["process"], "protocol": protocol, "port": table[name]})
    return listeners
