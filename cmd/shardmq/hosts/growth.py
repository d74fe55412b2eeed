"""`shardmq shard add`: more shards, while the broker runs."""

import secrets
from typing import Final

import click
from msgspec.structs import replace

from shardmq.cmd.hosts.register import BrokerRegister, opened
from shardmq.cmd.run.hosts.options import ETCD
from shardmq.cmd.terminal.numbers import WholeNumber
from shardmq.cmd.terminal.options import JSON
from shardmq.cmd.terminal.output import CommandFailed, print_done
from shardmq.cmd.terminal.values import counted
from shardmq.limits import SHARDS_MAX
from shardmq.replication.etcd.values import BROKER, Broker, Growth
from shardmq.replication.planning.cluster import Cluster, shard_group

ANSWER_SECONDS: Final = 10.0
"""For all hosts to say whether they have what more shards need; one that runs answers within a second."""

OTHERS_ADD: Final = "somebody else is adding shards just now; look at `shardmq shard list`, and try again"

LED_SECONDS: Final = 60.0
"""For the first primaries of the added shards: they are there within two seconds or so."""


@click.command("add")
@click.argument("count", type=WholeNumber(1, SHARDS_MAX), default=1, metavar="[N]")
@ETCD
@JSON
def shard_add(*, count: int, join: str | None, as_json: bool) -> None:
    """Add N shards, 1 where nobody says, to a broker on several hosts while it runs. They stay for good.

    All hosts are asked before anything changes: they need keys and ports for the new shards. Queues that are there stay
    where they are; new ones, and new partitions of topics, use the new shards too.
    """
    with opened(join) as register:
        before = register.cluster().broker.shards
        wanted = before + count
        if wanted > SHARDS_MAX:
            raise CommandFailed(f"a broker has {SHARDS_MAX:,} shards at most, and this one has {before} already")
        growth = Growth(wanted, secrets.token_hex(8))
        if not register.change(BROKER, "", lambda there: _asked(there, before, growth)):
            raise CommandFailed(OTHERS_ADD)
        _check_hosts(register, growth)
        if not register.change(BROKER, "", lambda there: _grown(there, growth)):
            raise CommandFailed(OTHERS_ADD)
        names = [shard_group(number) for number in range(before, wanted)]
        added = f"{', '.join(names)}; the broker has {counted(wanted, 'shard')} now"
        if not register.wait_until(lambda cluster: _are_led(cluster, names), LED_SECONDS):
            raise CommandFailed(
                f"added {added}, but nobody leads all of them after {LED_SECONDS:.0f} s; `shardmq shard list` says how "
                "they are, and the hosts' logs why. No queue is placed on them before"
            )
    print_done(f"Added {added}", as_json, shards=wanted, added=names)


def _check_hosts(register: BrokerRegister, growth: Growth) -> None:
    """Wait for all hosts to say that they have what is needed.

    Raises:
        CommandFailed: one has not, or does not answer. Nothing has changed.
    """
    register.wait_until(lambda cluster: _is_answered(cluster, growth), ANSWER_SECONDS)
    cluster = register.cluster()
    if cluster.broker.growth != growth:
        raise CommandFailed(OTHERS_ADD)
    faults, silent = _faults(cluster, growth), _silent(cluster, growth)
    if not faults and not silent:
        return
    register.change(BROKER, "", lambda there: _withdrawn(there, growth))
    if faults:
        raise CommandFailed(f"no shard was added: {'; '.join(faults)}")
    who = ", ".join(f"'{name}'" for name in silent)
    raise CommandFailed(
        f"no shard was added: {'host' if len(silent) == 1 else 'hosts'} {who} did not answer within "
        f"{ANSWER_SECONDS:.0f} s whether keys and ports for them are there; start what has stopped, or take it away "
        "with `shardmq host drain` and `shardmq host remove`"
    )


def _is_answered(cluster: Cluster, growth: Growth) -> bool:
    """Whether it is known what all hosts say, or that one lacks something, or that another question is asked now."""
    return cluster.broker.growth != growth or not _silent(cluster, growth) or bool(_faults(cluster, growth))


def _silent(cluster: Cluster, growth: Growth) -> list[str]:
    """Hosts that have not answered."""
    hosts = sorted(cluster.hosts.items())
    return [name for name, host in hosts if host.readiness is None or host.readiness.asked != growth.asked]


def _faults(cluster: Cluster, growth: Growth) -> list[str]:
    """What hosts lack."""
    answers = [(name, host.readiness) for name, host in sorted(cluster.hosts.items())]
    return [
        f"host '{name}': {answer.fault}"
        for name, answer in answers
        if answer is not None and answer.asked == growth.asked and answer.fault
    ]


def _asked(there: Broker | None, before: int, growth: Growth) -> Broker | None:
    """The broker with the question, if it has no more shards than when that was made up."""
    return None if there is None or there.shards != before else replace(there, growth=growth)


def _grown(there: Broker | None, growth: Growth) -> Broker | None:
    """The broker with more shards, if the question is still its newest one."""
    if there is None or there.growth != growth:
        return None
    return replace(there, shards=growth.shards, growth=None, shards_at_first=there.shards_at_first or there.shards)


def _withdrawn(there: Broker | None, growth: Growth) -> Broker | None:
    return None if there is None or there.growth != growth else replace(there, growth=None)


def _are_led(cluster: Cluster, names: list[str]) -> bool:
    return all(name in cluster.groups and cluster.groups[name].primary for name in names)
