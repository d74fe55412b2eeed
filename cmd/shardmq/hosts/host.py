"""`shardmq host`: list, drain, remove."""

from typing import Final

import click
import msgspec

from shardmq.cmd.hosts.register import BrokerRegister, opened
from shardmq.cmd.hosts.rows import host_rows
from shardmq.cmd.run.hosts.options import ETCD
from shardmq.cmd.terminal.numbers import Number
from shardmq.cmd.terminal.options import JSON, LIST
from shardmq.cmd.terminal.output import CommandFailed, print_done
from shardmq.cmd.terminal.rows import Column, RowChoice, extras, names, numbers
from shardmq.cmd.terminal.tables import print_list
from shardmq.replication.etcd.values import HOSTS, LOADS, WISHES, Host
from shardmq.replication.planning.stops import reasons_to_stay
from shardmq.replication.planning.wishes import check_host, draining

COLUMNS: Final = (
    *names("host", "state"),
    *numbers("leads", "replicas", "in_sync"),
    *names("gateway", "management"),
    Column("labels", is_wrapped=True),
    *extras("addresses", "session", "format"),
)

WAIT: Final = click.option(
    "--wait",
    "wait_seconds",
    type=Number(0, 86_400),
    default=0.0,
    metavar="SECONDS",
    help="Wait so long for it to be done.",
)


@click.group()
def host() -> None:
    """Hosts of a broker on several: list, hand over, drain, remove."""


@host.command("list")
@ETCD
@LIST
def host_list(*, join: str | None, choice: RowChoice, as_json: bool) -> None:
    """Show the hosts: how many groups each leads, has replicas of, and is in sync in."""
    with opened(join) as register:
        rows = host_rows(register.cluster())
    print_list("hosts", rows, COLUMNS, choice, as_json)


@host.command("hand-over")
@click.argument("name", envvar="SHARDMQ_HOST_NAME")
@click.option("--undo", is_flag=True, help="Let it lead again.")
@WAIT
@ETCD
@JSON
def host_hand_over(*, name: str, undo: bool, wait_seconds: float, join: str | None, as_json: bool) -> None:
    """Have everything that host NAME leads led by others, before it stops.

    With --wait, until it may stop: it leads nothing, and every group is whole without it. It keeps its replicas, and
    leads again once it has been started again. Without NAME it is the one of SHARDMQ_HOST_NAME.
    """
    with opened(join) as register:
        check_host(register.cluster(), name)

        def stopping(there: Host | None) -> Host | None:
            return None if there is None else msgspec.structs.replace(there, is_stopping=not undo)

        register.change(HOSTS, name, stopping)
        if undo:
            print_done(f"Host '{name}' may lead again", as_json)
            return
        reasons = reasons_to_stay(register.cluster(), name)
        if reasons and wait_seconds:
            may_stop = register.wait_until(lambda cluster: not reasons_to_stay(cluster, name), wait_seconds)
            # No second look: where others stop at the same moment, it would find them stopping.
            reasons = [] if may_stop else reasons_to_stay(register.cluster(), name)
    if reasons and wait_seconds:
        raise CommandFailed(
            f"host '{name}' is still needed after {wait_seconds:g} s: {'; '.join(reasons)}; `--undo` lets it lead again"
        )
    done = f"Host '{name}' hands over; still needed: {'; '.join(reasons)}" if reasons else f"Host '{name}' may stop"
    print_done(done, as_json, needed=reasons)


@host.command("drain")
@click.argument("name")
@click.option("--undo", is_flag=True, help="Let it have replicas again.")
@WAIT
@ETCD
@JSON
def host_drain(*, name: str, undo: bool, wait_seconds: float, join: str | None, as_json: bool) -> None:
    """Have everything that host NAME has moved to others, while the broker goes on.

    A host that is away can be drained as well: its replicas are made anew from those that are there.
    """
    with opened(join) as register:
        register.change(HOSTS, name, draining(register.cluster(), name, not undo))
        if undo:
            print_done(f"Host '{name}' may have replicas again", as_json)
            return
        is_empty = _wait_until_empty(register, name, wait_seconds)
        left = register.cluster().loads()[name]
    if wait_seconds and not is_empty:
        raise CommandFailed(
            f"host '{name}' still has {left} of its replicas after {wait_seconds:g} s; it goes on: `shardmq shard list`"
            " says where each is, and whether other hosts have room for them"
        )
    done = f"Drained host '{name}': it has no replicas" if not left else f"Draining host '{name}': {left} replicas left"
    print_done(done, as_json, replicas=left)


@host.command("remove")
@click.argument("name")
@ETCD
@JSON
def host_remove(*, name: str, join: str | None, as_json: bool) -> None:
    """Forget host NAME, which was drained and has stopped. One that still runs stops when it hears of it."""
    with opened(join) as register:
        cluster = register.cluster()
        check_host(cluster, name)
        if left := cluster.loads()[name]:
            raise CommandFailed(f"host '{name}' has {left} replicas; `shardmq host drain {name}` moves them away first")
        if not cluster.hosts[name].is_draining:
            raise CommandFailed(
                f"host '{name}' does not drain, and may get replicas any time; `shardmq host drain {name}` first"
            )
        for group, wish in cluster.wishes.items():
            if name in (wish.source, wish.target):
                register.remove(WISHES, group)
        register.remove(LOADS, name)
        register.remove(HOSTS, name)
    print_done(f"Removed host '{name}'", as_json)


def _wait_until_empty(register: BrokerRegister, name: str, seconds: float) -> bool:
    return bool(seconds) and register.wait_until(lambda cluster: not cluster.loads()[name], seconds)
