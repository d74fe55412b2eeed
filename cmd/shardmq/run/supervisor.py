"""The supervisor behind `shardmq up`: one broker on one machine, kept running until it is told to stop.

A broker is a coordinator, shards and gateways; a process that runs shovels comes with the first of them and goes with
the last. All start at once and reach one another over ipc sockets in a private
directory. A process that ends is restarted; one that refuses to start (exit code 78) stops the broker. Gateways stop
first, so that they can still send clients the confirms that are due, then shards, then the coordinator.
"""

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from shardmq.cmd.run.child import STOP_SECONDS, Child, Demand
from shardmq.cmd.run.hosts.identity import check_alone
from shardmq.cmd.run.locks import hold_data_dir, hold_metrics_port, hold_port, private_directory
from shardmq.cmd.run.notices import Notice
from shardmq.cmd.run.roster import (
    COORDINATOR,
    GATEWAY,
    MANAGEMENT,
    SHARD,
    SHOVELS,
    BrokerOptions,
    Roster,
    children,
)
from shardmq.cmd.run.watch import Watch
from shardmq.cmd.terminal.exit_codes import EXIT_CONFIG, EXIT_FAILED, EXIT_INTERRUPTED
from shardmq.cmd.terminal.process_options import ManagementChoice
from shardmq.errors import StartupRefused
from shardmq.runtime import notify
from shardmq.runtime.signals import StopSignal

RESTART_SECONDS: Final = 0.1
RESTART_SECONDS_MAX: Final = 5.0
"""Pause before a restart: doubles from one to the other, so that a process that keeps failing costs little."""

STEADY_SECONDS: Final = 10.0
"""A process that ran this long was healthy: its next restart is quick again."""

PATIENCE_SECONDS: Final = 5.0
"""Seconds between two notices at the start that name the processes that are not ready."""

BESIDE: Final = (MANAGEMENT, SHOVELS)
"""Processes that a broker does not need to be up."""


def supervise(options: BrokerOptions, announce: Callable[[Notice], None]) -> int:
    """Run a broker until SIGTERM or SIGINT.

    Args:
        options: of the broker.
        announce: called with each notice.

    Returns:
        The exit code: 0 after a clean stop.

    Raises:
        StartupRefused: the data directory or the port are in use, or not usable.
    """
    with held(options, announce) as (known, run_dir):
        check_alone(known.data_dir)
        return asyncio.run(Supervisor(known, run_dir, announce).run())


@contextlib.contextmanager
def held(options: BrokerOptions, announce: Callable[[Notice], None]) -> Iterator[tuple[BrokerOptions, Path]]:
    """Keep what a running broker has to itself; yields the options with its ports, and a folder for sockets.

    Raises:
        StartupRefused: the data directory or the port are in use, or not usable.
    """
    with (
        hold_data_dir(options.data_dir),
        hold_port(options.host, options.port) if options.has_plain else contextlib.nullcontext(options.port) as port,
        contextlib.nullcontext() if options.tls is None else hold_port(options.tls_host, options.tls.port, "--tls-"),
        hold_management_port(options.management, announce) as management,
        private_directory() as run_dir,
    ):
        yield replace(options, port=port, data_dir=options.data_dir.resolve(), management=management), run_dir


@contextlib.contextmanager
def hold_management_port(chosen: ManagementChoice, announce: "Callable[[Notice], None]") -> Iterator[ManagementChoice]:
    """Keep the port of the management process, as `hold_port`; a broker goes without where the default one is taken.

    Raises:
        StartupRefused: somebody listens at the port that was chosen, or it is no address of this machine.
    """
    if chosen.port is None:
        yield chosen
        return
    with contextlib.ExitStack() as stack:
        try:
            port = stack.enter_context(hold_port(chosen.host, chosen.port, "--management-"))
        except StartupRefused as fault:
            if not chosen.is_default or chosen.metrics_port is not None:
                raise
            announce(Notice("unmanaged", f"no management, no HTTP API: {fault.text}"))
            yield replace(chosen, port=None)
        else:
            yield replace(chosen, port=port, metrics_port=stack.enter_context(hold_metrics_port(chosen)))


class Supervisor:
    """Starts, restarts and stops the processes of one broker.

    Args:
        options: of the broker.
        run_dir: folder for the processes' sockets.
        announce: called with each notice.
        roster: makes the processes.
    """

    def __init__(
        self, options: BrokerOptions, run_dir: Path, announce: Callable[[Notice], None], roster: Roster = children
    ) -> None:
        self._options = options
        self._announce = announce
        self._children = roster(options, run_dir, self._child_ready)
        self._demands = {child.name: Demand(child) for child in self._children if child.is_on_demand}
        self._keepers: list[asyncio.Task[None]] = []
        self._children[0].on_shovels = self._demands["shovels"].want
        self._started_at = time.monotonic()
        self._is_up = False
        self._stopping = asyncio.Event()
        self._stop_requests = 0
        self._exit_code = 0

    async def run(self) -> int:
        """Run the broker until it is told to stop; returns the exit code."""
        loop = asyncio.get_running_loop()
        StopSignal.on_loop(loop, self._told_to_stop)
        loop.call_later(PATIENCE_SECONDS, self._say_who_is_missing)
        Watch(self._children, self._say).look()
        for child in self._children:
            self._look_after(child)
        await self._stopping.wait()
        await self._stop()
        await asyncio.gather(*self._keepers)
        self._announce(Notice("stopped", "stopped", exit_code=self._exit_code))
        return self._exit_code

    def _take_on(self, child: Child) -> None:
        """Have one more process, which is there on demand, while the broker runs."""
        self._children.append(child)
        self._demands[child.name] = Demand(child)
        self._look_after(child)

    def _look_after(self, child: Child) -> None:
        keeper = asyncio.create_task(self._keep(child))
        # One that ends before the stop has a bug: everything is stopped, and the exception is raised then.
        keeper.add_done_callback(lambda _: self._stopping.set())
        self._keepers.append(keeper)

    async def _keep(self, child: Child) -> None:
        """Start a process, and restart it whenever it ends, until the broker stops."""
        pause = RESTART_SECONDS
        demand = self._demands.get(child.name)
        while not self._stopping.is_set():
            if demand is not None:
                await demand.wait(self._stopping)
                if self._stopping.is_set():
                    return
            code = await child.run()
            if demand is not None and not demand.is_wanted:
                continue
            if self._stopping.is_set():
                return
            if code == EXIT_CONFIG:
                self._say("refused", child, f"{child.name} refused to start; stopping everything", exit_code=code)
                self._exit_code = EXIT_CONFIG
                self._stopping.set()
                return
            if time.monotonic() - child.started_at >= STEADY_SECONDS:
                pause = RESTART_SECONDS
            self._say_exited(child, code, pause)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause)
            pause = min(pause * 2, RESTART_SECONDS_MAX)

    async def _stop(self) -> None:
        """Stop all processes, stage by stage."""
        notify.stopping()
        if not self._exit_code:
            self._announce(Notice("stopping", "stopping: gateways, then shards, then the coordinator"))
        for stage in (SHOVELS, MANAGEMENT, GATEWAY, SHARD, COORDINATOR):
            members = [child for child in self._children if child.stage == stage]
            for child, in_time in zip(members, await asyncio.gather(*(child.stop() for child in members)), strict=True):
                if not in_time:
                    self._say("killed", child, f"{child.name} did not stop within {STOP_SECONDS:.0f} s and was killed")
                    self._exit_code = self._exit_code or EXIT_FAILED

    def _told_to_stop(self) -> None:
        self._stopping.set()
        self._stop_requests += 1
        if self._stop_requests > 1:
            self._exit_code = EXIT_INTERRUPTED
            for child in self._children:
                child.kill()

    def _child_ready(self, child: Child) -> None:
        seconds = time.monotonic() - child.started_at
        is_back = child.starts > 1 and child.stage != SHOVELS  # which comes and goes as it is wanted
        if is_back or child.stage in BESIDE:
            place = f" at {self._options.management_url}" if child.stage == MANAGEMENT else ""
            how = "back" if is_back else f"ready{place}"
            text = f"{child.name} is {how} as process {child.pid} after {seconds:.1f} s"
            self._say(
                "managed" if child.stage == MANAGEMENT and not is_back else "ready",
                child,
                text,
                seconds=round(seconds, 3),
            )
        if not self._is_up and not self._missing():
            self._is_up = True
            notify.ready()
            self._say_up()

    def _missing(self) -> list[str]:
        """The processes that are not ready, of those that a broker needs to be up."""
        needed = [child for child in self._children if child.is_wanted and child.stage not in BESIDE]
        return [child.name for child in needed if not child.is_ready]

    def _say_up(self) -> None:
        options, seconds = self._options, time.monotonic() - self._started_at
        pids = {child.name: child.pid for child in self._children if child.is_wanted and child.stage != SHOVELS}
        chosen = "" if options.cores is None else f"; gateways: {options.gateways}, cores: {options.cores}"
        self._announce(
            Notice(
                "up",
                f"ready after {seconds:.1f} s at {options.url}{chosen}",
                seconds=round(seconds, 3),
                host=options.host if options.has_plain else None,
                port=options.port if options.has_plain else None,
                url=options.url,
                tls_host=options.tls_host if options.tls else None,
                tls_port=options.tls.port if options.tls else None,
                tls_verify=options.tls.verify_client if options.tls else None,
                data_dir=str(options.data_dir),
                processes=pids,
                management=options.management_url,
                cores=options.cores,
            )
        )

    def _say_who_is_missing(self) -> None:
        if self._is_up or self._stopping.is_set():
            return
        missing = ", ".join(self._missing())
        seconds = time.monotonic() - self._started_at
        self._announce(Notice("waiting", f"after {seconds:.0f} s still waiting for {missing}", seconds=round(seconds)))
        asyncio.get_running_loop().call_later(PATIENCE_SECONDS, self._say_who_is_missing)

    def _say_exited(self, child: Child, code: int, pause: float) -> None:
        name = signal.Signals(-code).name if code < 0 else None
        how = f"was killed by {name}" if name else f"ended with exit code {code}"
        hint = ""
        if name == "SIGBUS" and child.stage in (SHARD, COORDINATOR):
            check = f"stop the broker, and run `shardmq store check {self._options.data_dir}`"
            hint = f". So it is where the disk cannot read a part of its store: if it comes again, {check}"
        self._say(
            "exited",
            child,
            f"{child.name} (process {child.pid}) {how}; starting it again in {pause:.1f} s{hint}",
            exit_code=code if code >= 0 else None,
            signal=name,
            seconds=pause,
        )

    def _say(
        self,
        event: str,
        child: Child,
        text: str,
        *,
        exit_code: int | None = None,
        signal: str | None = None,
        seconds: float | None = None,
    ) -> None:
        self._announce(
            Notice(event, text, process=child.name, pid=child.pid, exit_code=exit_code, signal=signal, seconds=seconds)
        )
