"""`shardmq shard list`, `transfer`, `move` and `elect`: the coordinator is a group as the shards are."""

import secrets
from typing import Final

import click

from shardmq.cmd.hosts.host import WAIT
from shardmq.cmd.hosts.register import BrokerRegister, opened
from shardmq.cmd.hosts.rows import group_rows
from shardmq.cmd.run.hosts.options import ETCD
from shardmq.cmd.terminal.options import JSON, LIST, YES
from shardmq.cmd.terminal.output import CommandFailed, confirm, print_done
from shardmq.cmd.terminal.rows import Column, RowChoice, extras, names, numbers
from shardmq.cmd.terminal.tables import print_list
from shardmq.replication.etcd.errors import EtcdError
from shardmq.replication.etcd.values import WISHES, Wish
from shardmq.replication.planning.cluster import Cluster
from shardmq.replication.planning.wishes import check_host, found, moving, transferring

COLUMNS: Final = (
    *names("shard", "primary"),
    *numbers("term"),
    Column("in_sync", is_wrapped=True),
    Column("replicas", is_wrapped=True),
    Column("state", is_wrapped=True, style=lambda row: "" if row["state"] == "whole" else "yellow"),
    *extras("cores", "min_in_sync", "incarnation"),
)

TRANSFER_SECONDS: Final = 10.0
"""A transfer takes 0.2 s, and is tried again for as long as this."""

ELECTION_SECONDS: Final = 10.0

WITHDRAWAL_SECONDS: Final = 1.0
"""For a host that heard of its election just before that was taken back."""


@click.command("list")
@ETCD
@LIST
def shard_list(*, join: str | None, choice: RowChoice, as_json: bool) -> None:
    """Show the replica groups of a broker on several hosts: who leads, who is in sync."""
    with opened(join) as register:
        rows = group_rows(register.cluster())
    print_list("groups", rows, COLUMNS, choice, as_json)


@click.command("transfer")
@click.argument("name", metavar="SHARD")
@click.argument("host")
@ETCD
@JSON
def shard_transfer(*, name: str, host: str, join: str | None, as_json: bool) -> None:
    """Have SHARD, or the coordinator, led by another HOST that is in sync. Nothing that is confirmed is lost."""
    with opened(join) as register:
        cluster = register.cluster()
        edit, group = transferring(cluster, name, host), cluster.groups[name]
        if group.primary != host:
            register.change(WISHES, name, edit)
            if not register.wait_until(lambda cluster: cluster.groups[name].term > group.term, TRANSFER_SECONDS):
                raise CommandFailed(
                    f"'{group.primary}' has not handed {name} over to '{host}' within {TRANSFER_SECONDS:.0f} s; "
                    "`shardmq shard list` says how it is"
                )
        now = register.cluster().groups[name]
    if now.primary != host:
        raise CommandFailed(f"{name} is led by '{now.primary}': it was elected in term {now.term} before the transfer")
    print_done(f"{name} is led by '{host}', in term {now.term}", as_json, term=now.term)


@click.command("move")
@click.argument("name", metavar="SHARD")
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@WAIT
@ETCD
@JSON
def shard_move(*, name: str, source: str, target: str, wait_seconds: float, join: str | None, as_json: bool) -> None:
    """Have a replica of SHARD on host TO instead of on FROM. No replica is missing meanwhile."""
    with opened(join) as register:
        register.change(WISHES, name, moving(register.cluster(), name, source, target))
        is_done = bool(wait_seconds) and register.wait_until(
            lambda cluster: source not in cluster.groups[name].replicas, wait_seconds
        )
    if wait_seconds and not is_done:
        raise CommandFailed(
            f"{name} has not moved from '{source}' to '{target}' within {wait_seconds:g} s; it goes on: "
            "`shardmq shard list` says how it is"
        )
    done = f"Moved {name} from" if is_done else f"Moving {name} from"
    print_done(f"{done} '{source}' to '{target}'", as_json, done=is_done)


@click.command("elect")
@click.argument("name", metavar="SHARD")
@click.argument("host")
@YES
@ETCD
@JSON
def shard_elect(*, name: str, host: str, yes: bool, join: str | None, as_json: bool) -> None:
    """Have SHARD led by HOST, which is not in sync: what only the others have is lost for good.

    For when all hosts in sync are gone and will not come back.
    """
    with opened(join) as register:
        cluster = register.cluster()
        group = found(cluster, name)
        check_host(cluster, host)
        if host in group.in_sync or host not in group.replicas:
            others = sorted({*group.replicas} - {*group.in_sync})
            raise CommandFailed(
                f"'{host}' cannot be elected for {name} with a loss: it "
                + ("is in sync, and needs none" if host in group.in_sync else "has no replica of it")
                + f"; that is for {', '.join(others) or 'nobody'}"
            )
        loss = f"confirmed messages of {name} that only {', '.join(sorted(group.in_sync))} has are lost for good"
        confirm(f"Have {name} led by '{host}'? {loss.capitalize()}.", loss, yes)
        is_elected = _elected(register, name, Wish(group.term, host, unclean=secrets.token_hex(8)), group.incarnation)
        now = register.cluster().groups[name]
    if not is_elected:
        raise CommandFailed(
            f"'{host}' does not lead {name} after {ELECTION_SECONDS:.0f} s, and is not to be elected any more; is it "
            "running? its log says what it lacks"
        )
    print_done(f"{name} is led by '{now.primary}', in term {now.term}; {loss}", as_json, term=now.term)


def _elected(register: BrokerRegister, name: str, wish: Wish, before: str) -> bool:
    """Have a host elected with a loss; returns whether it was. Else that is taken back, also after an interrupt.

    When the host runs again, one that is in sync may run, too.

    Args:
        register: of the broker.
        name: of the group.
        wish: that a host leads it.
        before: the group's incarnation.

    Raises:
        EtcdError: it does not answer.
        CommandFailed: it is not known to have been taken back.
    """

    def is_elected(cluster: Cluster) -> bool:
        return cluster.groups[name].incarnation != before

    is_over = False
    try:
        register.change(WISHES, name, lambda _: wish)
        is_over = register.wait_until(is_elected, ELECTION_SECONDS)
    finally:
        if not is_over:
            _withdraw(register, name, wish)
    return is_over or register.wait_until(is_elected, WITHDRAWAL_SECONDS)


def _withdraw(register: BrokerRegister, name: str, wish: Wish) -> None:
    """Take a wish for an election with a loss back.

    Raises:
        CommandFailed: etcd does not do so.
    """
    try:
        register.change(WISHES, name, lambda there: Wish(wish.term) if there == wish else None)
    except EtcdError as fault:
        raise CommandFailed(
            f"'{wish.primary}' may still come to lead {name}, with that loss, as soon as it runs: etcd does not take "
            f"back that it is to ({fault}); unless it is to lead, delete the key wishes/{name} of this broker from etcd"
        ) from fault
