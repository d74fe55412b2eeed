"""The processes of one host, with the command line of each. Replicas are there on demand: etcd says which."""

from collections.abc import Callable
from pathlib import Path

from shardmq.cmd.run.child import Child
from shardmq.cmd.run.hosts.options import JOIN_VARIABLE, HostOptions
from shardmq.cmd.run.roster import COORDINATOR, SHARD, BrokerOptions, Place, front
from shardmq.replication.etcd.values import Broker
from shardmq.replication.planning.cluster import shard_group


class HostRoster:
    """Makes the processes of one host.

    Args:
        host: its options.
        broker: that it has joined.
    """

    def __init__(self, host: HostOptions, broker: Broker) -> None:
        self._host = host
        self._broker = broker

    def __call__(self, options: BrokerOptions, run_dir: Path, on_ready: Callable[[Child], None]) -> list[Child]:
        """The processes, the coordinator first."""
        coordinator = ("coordinator", *self._replica(options, "coordinator"), "--boot-id", self._broker.id)
        coordinator = (*coordinator, *options.log.words, *options.definitions_words)
        members = [self._on_demand("coordinator", COORDINATOR, coordinator, run_dir, on_ready)]
        members += self.shards(range(self._broker.shards), options, run_dir, on_ready)
        to_others = ("--host-name", self._host.name, *self._host.security_words)
        place = Place(to_others, self._host.name, {JOIN_VARIABLE: self._host.join})
        return [*members, *front(options, place, run_dir, on_ready)]

    def shards(
        self, numbers: range, options: BrokerOptions, run_dir: Path, on_ready: Callable[[Child], None]
    ) -> list[Child]:
        """The processes of some shards."""
        members = []
        for index in numbers:
            name = shard_group(index)
            shard = ("shard", "--index", str(index), *self._replica(options, name), *options.shard_words)
            members.append(self._on_demand(name, SHARD, shard, run_dir, on_ready))
        return members

    def _replica(self, options: BrokerOptions, group: str) -> tuple[str, ...]:
        """Words of a replica's command line."""
        addresses = self._host.bus_addresses(options.shards)
        return (
            *("--host-name", self._host.name, "--broker", self._broker.id),
            *("--data-dir", str(options.data_dir), "--listen", addresses[group]),
            *("--listen-replica", addresses[f"{group}/replica"], *self._host.security_words),
        )

    def _on_demand(
        self, name: str, stage: int, words: tuple[str, ...], run_dir: Path, on_ready: Callable[[Child], None]
    ) -> Child:
        variables = {JOIN_VARIABLE: self._host.join}
        return Child(name, stage, words, run_dir, on_ready, variables=variables, is_on_demand=True)
