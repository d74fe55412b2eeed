"""The supervisor of one host of several: runs the replicas that this host has in etcd.

It starts and stops replicas as etcd says, plans where replicas are to be while this host leads the coordinator, and
before it stops it has everything led elsewhere that can be.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec

from shardmq.cmd.run.hosts.growth import ShardGrowth
from shardmq.cmd.run.hosts.load import LoadMeter
from shardmq.cmd.run.hosts.membership import Membership
from shardmq.cmd.run.hosts.needs import check_needs
from shardmq.cmd.run.hosts.options import HostOptions
from shardmq.cmd.run.hosts.planner import Planner
from shardmq.cmd.run.hosts.roster import HostRoster
from shardmq.cmd.run.locks import client_host, is_wildcard
from shardmq.cmd.run.notices import Notice
from shardmq.cmd.run.roster import COORDINATOR, SHARD, BrokerOptions
from shardmq.cmd.run.supervisor import PATIENCE_SECONDS, Supervisor, held
from shardmq.cmd.terminal.exit_codes import EXIT_CONFIG
from shardmq.cmd.terminal.values import counted
from shardmq.errors import StartupRefused
from shardmq.replication.etcd.errors import EtcdError, InvalidUrl
from shardmq.replication.etcd.values import HOSTS, Broker, Host
from shardmq.replication.planning.cluster import COORDINATOR as COORDINATOR_GROUP
from shardmq.replication.planning.cluster import Cluster
from shardmq.runtime.signals import StopSignal

HAND_OVER_SECONDS: Final = 5.0
"""For all groups that this host leads, before it stops: one takes 0.2 s. What is not handed over by then is elected
anew after 1.5 s, as if this host were killed."""


def supervise_host(options: BrokerOptions, host: HostOptions, announce: Callable[[Notice], None]) -> int:
    """Run one host of a broker until SIGTERM or SIGINT.

    Args:
        options: of what runs on this host.
        host: its place among the others.
        announce: called with each notice.

    Returns:
        The exit code: 0 after a clean stop.

    Raises:
        StartupRefused: the data directory or the port are in use, its address, its keys or files for TLS to etcd cannot
            be used, or the broker was made otherwise.
    """
    check_needs(host, options.gateways)
    with held(options, announce) as (known, run_dir):
        return asyncio.run(_run(known, host, run_dir, announce))


async def _run(options: BrokerOptions, host: HostOptions, run_dir: Path, announce: Callable[[Notice], None]) -> int:
    try:
        membership = Membership(host)
    except InvalidUrl as fault:
        raise StartupRefused(fault.text) from fault
    try:
        broker = await _joined(options, host, membership, announce)
        if broker is None:
            announce(Notice("stopped", "stopped", exit_code=0))
            return 0
        options = replace(options, shards=broker.shards)
        return await HostSupervisor(options, host, broker, membership, run_dir, announce).run()
    finally:
        membership.close()


async def _joined(
    options: BrokerOptions, host: HostOptions, membership: Membership, announce: Callable[[Notice], None]
) -> Broker | None:
    """The broker, once this host is one of it; None where it was told to stop before."""
    stopping = asyncio.Event()
    StopSignal.on_loop(asyncio.get_running_loop(), stopping.set)
    reached = host.address if is_wildcard(options.host) else options.host
    addresses = {"gateway": f"{client_host(reached)}:{options.port}"}
    if options.management_url is not None:
        addresses["management"] = options.management_url
    joining = asyncio.create_task(membership.join(options.data_dir, addresses))
    stop = asyncio.create_task(stopping.wait())
    began = time.monotonic()
    while True:
        asked = asyncio.create_task(membership.silence(PATIENCE_SECONDS))
        ended = (await asyncio.wait([joining, stop], timeout=PATIENCE_SECONDS, return_when=asyncio.FIRST_COMPLETED))[0]
        if ended:
            asked.cancel()
            break
        seconds, reason = round(time.monotonic() - began), await asked
        what = f"still waiting for {host.url}: {reason or 'it answers, and takes no change; has it a leader?'}"
        announce(Notice("waiting", f"after {seconds} s {what}", seconds=seconds))
    stop.cancel()
    if joining.done():
        return joining.result()
    joining.cancel()
    return None


class HostSupervisor(Supervisor):
    """Starts, restarts and stops the processes of one host.

    Args:
        options: of what runs on it.
        host: its place among the others.
        broker: that it has joined.
        membership: its part in that.
        run_dir: folder for the processes' sockets.
        announce: called with each notice.
    """

    def __init__(
        self,
        options: BrokerOptions,
        host: HostOptions,
        broker: Broker,
        membership: Membership,
        run_dir: Path,
        announce: Callable[[Notice], None],
    ) -> None:
        roster = HostRoster(host, broker)
        super().__init__(options, run_dir, announce, roster)
        self._roster = roster
        self._run_dir = run_dir
        self._growth = ShardGrowth(membership, host, broker.shards, self._add_shards)
        self._name = host.name
        self._membership = membership
        self._planner = Planner(membership, host.name)
        self._meter = LoadMeter(membership, host.name, self._children)
        self._news = asyncio.Event()
        self._is_placed = False
        self._led_coordinator = False

    async def run(self) -> int:
        """Run this host's part of the broker until it is told to stop; returns the exit code."""
        self._membership.changed = self._changed
        self._membership.follow()
        tasks = [asyncio.create_task(work) for work in self._tasks()]
        for task in tasks:
            task.add_done_callback(lambda _: self._stopping.set())
        try:
            return await super().run()
        finally:
            for task in tasks:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    def _tasks(self) -> "tuple[Coroutine[None, None, None], ...]":
        """What goes on beside the processes."""
        return self._planner.run(), self._growth.run(), self._meter.run()

    def _add_shards(self, numbers: range) -> None:
        """Have the processes of shards that were added ready to start here, and start those that this host has."""
        self._options = replace(self._options, shards=numbers.stop)
        added = self._roster.shards(numbers, self._options, self._run_dir, self._child_ready)
        for child in added:
            self._take_on(child)
        names = ", ".join(child.name for child in added)
        self._announce(Notice("grown", f"added {names}; the broker has {counted(numbers.stop, 'shard')} now"))
        self._changed()

    def _changed(self) -> None:
        """Have the replicas run that this host has by now."""
        cluster = self._membership.cluster
        if cluster is None:
            return
        if reason := self._why_over():
            if self._exit_code == EXIT_CONFIG:  # told before, and stopping
                return
            self._exit_code = EXIT_CONFIG
            self._announce(Notice("refused", f"{reason}; stopping everything here"))
            self._stopping.set()
            return
        self._planner.look()
        self._growth.look()
        self._news.set()
        self._is_placed = bool(cluster.groups)
        self._look_after_shovels(cluster)
        for child in self._children:
            if child.stage in (COORDINATOR, SHARD):
                group = cluster.groups.get(child.name)
                is_here = group is not None and self._name in group.replicas
                if is_here != child.is_wanted:
                    self._demands[child.name].want(int(is_here))

    def _why_over(self) -> str:
        """Why this host is none of the broker any more; "" where it is."""
        if self._membership.is_removed:
            return f"host '{self._name}' was removed from the broker; start it again to have it join anew"
        if self._membership.is_replaced:
            return f"another `shardmq up` has the name '{self._name}' now"
        return ""

    def _missing(self) -> list[str]:
        if self._is_placed:
            return super()._missing()
        cluster = self._membership.cluster
        absent = sorted({*cluster.broker.hosts} - {*cluster.hosts}) if cluster else []
        return [f"host {name}" for name in absent] or ["the other hosts"]

    def _look_after_shovels(self, cluster: Cluster) -> None:
        """Stop the shovels once another host leads the coordinator, which has its own run them."""
        group = cluster.groups.get(COORDINATOR_GROUP)
        leads = group is not None and group.primary == self._name
        if self._led_coordinator and not leads:
            self._demands["shovels"].want(0)
        self._led_coordinator = leads

    async def _stop(self) -> None:
        if not self._exit_code and not self._stop_requests > 1:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._hand_over(), HAND_OVER_SECONDS)
        await super()._stop()

    async def _hand_over(self) -> None:
        """Have everything led elsewhere that can be."""

        def stopping(host: Host | None) -> Host | None:
            return None if host is None else msgspec.structs.replace(host, is_stopping=True)

        try:
            await self._membership.change(HOSTS, self._name, stopping, HAND_OVER_SECONDS)
        except EtcdError as fault:
            self._announce(Notice("waiting", f"the other hosts do not hear of the stop before it: {fault}"))
            return
        while self._leads_for_others():
            self._news.clear()
            await self._news.wait()

    def _leads_for_others(self) -> bool:
        """Whether this host leads a group that another one could lead."""
        cluster = self._membership.cluster
        if cluster is None:
            return False
        able = cluster.able_to_lead
        led = [group for group in cluster.groups.values() if group.primary == self._name]
        return any(heir in able for group in led for heir in group.in_sync)
