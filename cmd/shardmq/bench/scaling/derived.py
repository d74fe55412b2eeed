"""What the documents derive from recorded costs: rates by the model, beside measured ones and on more hosts."""

from typing import Any, Final

from shardmq.cmd.bench.scaling.model import Costs, Hosts, bounds, rate

HOSTS: Final = (1, 2, 3, 5, 10, 20)

CORES: Final = 8
GATEWAYS: Final = 4
SHARDS: Final = 4
REPLICAS: Final = 2
SENT_PER_S: Final = 1.25e9
WRITTEN_PER_S: Final = 1e9
"""A host of the model: its cores, gateways, the shards that it leads, their copies; bytes that it sends and writes."""

BODY_BYTES: Final = 100
"""Of the messages whose costs are recorded."""

Row = dict[str, Any]


def beside_model(result: Row) -> list[Row]:
    """Rates of layouts, with those that the model makes of the first layout's costs on the machine's cores."""
    measured = {(row["gateways"], row["shards"]): row for row in result["rows"]}
    costs = measured[1, 1]["cpu_us"]
    rows = []
    for (gateways, shards), row in measured.items():
        told = {**row, "model": None, "bound": None, "error": None}
        if costs is not None and row["rate"] is not None:
            hosts = Hosts(1, result["machine"]["cores"], gateways, shards)
            whole = Costs(costs["gateway"], costs["shard"], client_us=costs["client"])
            told["model"], told["bound"] = rate(bounds(whole, hosts))
            told["error"] = 100 * (told["model"] / row["rate"] - 1)
            told["model"] = rounded(told["model"])
        rows.append(told)
    return rows


def modelled_hosts(result: Row) -> list[Row]:
    """What the model says of more and more hosts, from what copies of a shard were measured to take."""
    alone, two = result["rows"]
    rows = []
    for count in HOSTS:
        told: Row = {"hosts": count, **dict.fromkeys(("cores", "gateways", "shards", "network", "disk", "first"))}
        if alone["cpu_us"] is not None and two["cpu_us"] is not None:
            leading = max(0.0, two["cpu_us"]["primary"] - alone["cpu_us"]["primary"])
            costs = Costs(alone["cpu_us"]["gateway"], alone["cpu_us"]["primary"], two["cpu_us"]["follower"], leading)
            hosts = Hosts(count, CORES, GATEWAYS, SHARDS * count, min(REPLICAS, count), SENT_PER_S, WRITTEN_PER_S)
            found = bounds(costs, hosts, BODY_BYTES, two["written"])
            told |= {**{name: rounded(bound) for name, bound in found.items()}, "first": rate(found)[1]}
        rows.append(told)
    return rows


def rounded(found: float) -> float:
    """A rate with the three digits that a model has at most."""
    return float(f"{found:.3g}")
