"""What befalls a broker on several hosts while it is published to, and how long nothing is confirmed then."""

import os
import signal
import time
from collections.abc import Callable
from typing import Final, Protocol

from shardmq.cmd.bench.compare.load import Figures
from shardmq.cmd.bench.hosts.machines.etcd import Etcd
from shardmq.cmd.bench.hosts.machines.machine import Machine, freeze
from shardmq.cmd.bench.hosts.machines.network import Network
from shardmq.cmd.bench.hosts.replicated import SHARD, Replicated
from shardmq.cmd.bench.hosts.traffic import Traffic
from shardmq.cmd.run.supervisor import STEADY_SECONDS

BRIEFLY_SECONDS: Final = 0.5


class Cluster(Protocol):
    """A broker of which a host may be lost."""

    def led_queue(self) -> tuple[str, Machine, str]:
        """Declare a queue; returns its name, the host that leads it, and a URL of the others."""

    def come_back(self, machine: Machine) -> None:
        """Start a host again that was killed, and wait until all is as before."""

    def delete_queue(self, name: str) -> None:
        """Delete a queue, and what is in it."""


def host_killed(cluster: Cluster, network: Network) -> Figures:
    """All processes of the host that leads a queue are killed."""
    return _host_lost(cluster, network, Machine.kill)


def host_cut_off(cluster: Cluster, network: Network) -> Figures:
    """The network of the host that leads a queue is gone."""
    return _host_lost(cluster, network, lambda machine: network.isolate(machine.name))


def _host_lost(cluster: Cluster, network: Network, lose: Callable[[Machine], None]) -> Figures:
    queue, leader, url = cluster.led_queue()
    try:
        with Traffic("amqp", url, queue) as traffic:
            figures = _pause(traffic, lambda: lose(leader))
    finally:
        leader.kill()
        network.heal()
        cluster.come_back(leader)
    cluster.delete_queue(queue)
    return figures


def _pause(traffic: Traffic, happen: Callable[[], None]) -> Figures:
    """The longest time without a confirm around something that happens, and how many publishes were refused."""
    since = traffic.settle()
    happen()
    until = traffic.settle_after(time.monotonic())
    return {"pause_ms": traffic.pause_ms(since, until), "refused": traffic.refused(since)}


def process_killed(broker: Replicated, queue: str) -> Figures:
    """The shard's primary is killed; it is started again in place, or another one is elected.

    It has run for some time before: one that has just been killed is started again after a pause.
    """
    time.sleep(STEADY_SECONDS)
    with Traffic("sdk", broker.url(), queue) as traffic:
        figures = _pause(traffic, lambda: os.kill(broker.pid(broker.primary()), signal.SIGKILL))
    broker.wait_until_whole()
    return figures


def cut_off(broker: Replicated, network: Network, queue: str) -> Figures:
    """The host of the shard's primary is cut off, and comes back."""
    primary = broker.primary()
    try:
        with Traffic("sdk", broker.url(primary), queue) as traffic:
            figures = _pause(traffic, lambda: network.isolate(broker.machines[primary].name))
    finally:
        network.heal()
    broker.wait_until_whole()
    return figures


def transferred(broker: Replicated, queue: str) -> Figures:
    """An operator has the shard led by another host."""
    with Traffic("sdk", broker.url(), queue) as traffic:
        return _pause(traffic, lambda: broker.tell("shard", "transfer", SHARD, broker.follower()))


def frozen_briefly(broker: Replicated, queue: str) -> Figures:
    """A follower's process stands for half a second."""
    follower = broker.follower()
    pid = broker.pid(follower)
    stayed = []

    def stand() -> None:
        freeze(pid)
        time.sleep(BRIEFLY_SECONDS)
        stayed.append(follower in broker.group().in_sync)
        os.kill(pid, signal.SIGCONT)

    with Traffic("sdk", broker.url(), queue) as traffic:
        figures = _pause(traffic, stand)
    stayed.append(follower in broker.group().in_sync)
    broker.wait_until_whole()
    return {**figures, "evicted": 1.0 - all(stayed)}


def frozen(broker: Replicated, queue: str) -> Figures:
    """A follower's process stands until publishing goes on without it."""
    pid = broker.pid(broker.follower())
    with Traffic("sdk", broker.url(), queue) as traffic:
        figures = _pause(traffic, lambda: freeze(pid))
    os.kill(pid, signal.SIGCONT)
    broker.wait_until_whole()
    return figures


def etcd_away(broker: Replicated, etcd: Etcd, seconds: float, queue: str) -> Figures:
    """All members of etcd stand for some time."""

    def stand() -> None:
        etcd.freeze()
        time.sleep(seconds)
        etcd.thaw()

    with Traffic("sdk", broker.url(), queue) as traffic:
        figures = _pause(traffic, stand)
    broker.wait_until_whole()
    return figures
