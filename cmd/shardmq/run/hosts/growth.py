"""Shards that are added while a broker runs: whether this host has what they need, and where they are reached."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from msgspec.structs import replace

from shardmq.bus.curve import held, process_name
from shardmq.cmd.run.hosts.membership import Membership
from shardmq.cmd.run.hosts.needs import fault_of_port
from shardmq.cmd.run.hosts.options import HostOptions
from shardmq.cmd.terminal.values import counted
from shardmq.errors import StartupRefused
from shardmq.replication.etcd.values import HOSTS, Host, Readiness
from shardmq.replication.planning.cluster import shard_group


class ShardGrowth:
    """Answers whether shards can be added here, and takes in those that were.

    Args:
        membership: of this host.
        options: of this host.
        shards: how many the broker has now.
        add: called with the numbers of shards that were added, once it is known where they are reached here.
    """

    def __init__(
        self, membership: Membership, options: HostOptions, shards: int, add: Callable[[range], object]
    ) -> None:
        self._membership = membership
        self._options = options
        self._shards = shards
        self._add = add
        self._answered = ""
        self._news = asyncio.Event()

    def look(self) -> None:
        """Look again: something in etcd has changed."""
        self._news.set()

    async def run(self) -> None:
        """Take in shards that were added, and answer whether more can be, whenever something has changed."""
        while True:
            await self._news.wait()
            self._news.clear()
            cluster = self._membership.cluster
            if cluster is None:
                continue
            broker = cluster.broker
            if broker.shards > self._shards:
                await self._take_in(broker.shards)
            if broker.growth is not None and broker.growth.asked != self._answered:
                added = range(broker.shards, broker.growth.shards)
                fault = await asyncio.to_thread(fault_of_growth, self._options, sorted(cluster.hosts), added)
                await self._change(partial(replace, readiness=Readiness(broker.growth.asked, fault)))
                self._answered = broker.growth.asked

    async def _take_in(self, shards: int) -> None:
        """Say where the replicas of added shards are reached here, if they are, and have them run."""
        addresses = self._options.bus_addresses(shards)
        await self._change(lambda host: replace(host, addresses={**host.addresses, **addresses}))
        added, self._shards = range(self._shards, shards), shards
        self._add(added)

    async def _change(self, edit: Callable[[Host], Host]) -> None:
        """Change what etcd says of this host, unless another process has its name by now."""
        session = self._membership.session

        def changed(host: Host | None) -> Host | None:
            return None if host is None or host.session != session else edit(host)

        await self._membership.change(HOSTS, self._options.name, changed)


def fault_of_growth(options: HostOptions, hosts: Sequence[str], added: range) -> str:
    """What a host lacks for shards that are to be added; "" for nothing.

    Args:
        options: of the host.
        hosts: names of all hosts.
        added: numbers of the shards.
    """
    try:
        return _missing_keys(options, hosts, added) or _taken_ports(options, added)
    except StartupRefused as fault:
        return fault.text


def _missing_keys(options: HostOptions, hosts: Sequence[str], added: range) -> str:
    if options.keys is None:
        return ""
    rows = held(options.keys)
    secret = {row["name"] for row in rows if row["secret"]}
    allowed = {row["name"] for row in rows if row["allowed"]}
    names = [shard_group(number) for number in added]
    own = [process_name(options.name, name) for name in names]
    missing = [name for name in own if name not in secret]
    missing += [process_name(host, name) for host in hosts for name in names if process_name(host, name) not in allowed]
    if not missing:
        return ""
    return (
        f"{options.keys} lacks {counted(len({*missing}), 'key')}, as that of {missing[0]}; where the others "
        f"were made, `shardmq keys hosts {' '.join(hosts)} --shards {added.stop}` makes those that are missing; copy "
        "the folders to the hosts again"
    )


def _taken_ports(options: HostOptions, added: range) -> str:
    """Which port of an added shard somebody else has."""
    addresses = options.bus_addresses(added.stop)
    for number in added:
        group = shard_group(number)
        for name in (group, f"{group}/replica"):
            host, _, port = addresses[name].removeprefix("tcp://").rpartition(":")
            if fault := fault_of_port(host.strip("[]"), int(port)):
                return (
                    f"port {port} at {options.address}, which {group} needs, cannot be listened at ({fault}); free it, "
                    "or start this host with another --bus-port"
                )
    return ""
