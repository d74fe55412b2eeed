"""The options of one host of several, and the addresses that follow from them."""

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

from shardmq.cmd.run.locks import client_host
from shardmq.cmd.terminal.numbers import WholeNumber
from shardmq.cmd.terminal.options import all_of
from shardmq.cmd.terminal.process_options import INSECURE_BUS, KEYS
from shardmq.errors import ShardmqError
from shardmq.replication.etcd.url import EtcdUrl, parse
from shardmq.replication.planning.cluster import COORDINATOR, shard_group

DEFAULT_BUS_PORT: Final = 5680

DEFAULT_REPLICAS: Final = 2
"""Two hosts hold what is confirmed. With three of them, publishes wait for the slowest of more disks."""

HOST_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
"""As one label of a host's name in DNS."""

JOIN_VARIABLE: Final = "SHARDMQ_JOIN"
"""Environment name of the URL of etcd: with a password in it, it must not be seen among the processes."""


@dataclass(frozen=True, slots=True)
class HostOptions:
    """One host of several.

    Attributes:
        join: URL of etcd.
        name: of this host.
        address: at which the other hosts reach it.
        bus_port: the first of the ports for the processes of other hosts.
        shards: of the broker; None where nobody says.
        replicas: of each group; None where nobody says.
        min_in_sync: of each group; None where nobody says.
        hosts: to wait for before the broker is made.
        keys: folder of keys for links between hosts.
        is_insecure: whether loopback addresses need no keys.
    """

    join: str
    name: str
    address: str
    bus_port: int = DEFAULT_BUS_PORT
    shards: int | None = None
    replicas: int | None = None
    min_in_sync: int | None = None
    hosts: tuple[str, ...] = ()
    keys: Path | None = None
    is_insecure: bool = False

    @property
    def url(self) -> EtcdUrl:
        """Where etcd is.

        Raises:
            InvalidUrl: it cannot be read.
        """
        return parse(self.join)

    @property
    def security_words(self) -> tuple[str, ...]:
        """Words of a process's command line that say how its links are protected."""
        keys = () if self.keys is None else ("--keys", str(self.keys.resolve()))
        return (*keys, *(("--insecure-bus",) if self.is_insecure else ()))

    def bus_addresses(self, shards: int) -> dict[str, str]:
        """Where coordinator and shards are reached, if they are here, by `shard-0` and `shard-0/replica`.

        The first is for gateways and the coordinator, the second for other replicas. Each has a port of its own.
        """
        addresses = {}
        for place, group in enumerate([COORDINATOR, *map(shard_group, range(shards))]):
            for offset, suffix in enumerate(("", "/replica")):
                port = self.bus_port + 2 * place + offset
                addresses[f"{group}{suffix}"] = f"tcp://{client_host(self.address)}:{port}"
        return addresses


def _host_name(_context: click.Context, _option: click.Parameter, name: str | None) -> str | None:
    if name is not None and not HOST_NAME.fullmatch(name):
        raise click.BadParameter(f"'{name}' is no name of a host: small letters, digits and '-', as a or host-3")
    return name


def host_names(context: click.Context, option: click.Parameter, names: tuple[str, ...]) -> tuple[str, ...]:
    """Names of hosts, each once.

    Raises:
        BadParameter: one of them is no name of a host.
    """
    for name in names:
        _host_name(context, option, name)
    return tuple(dict.fromkeys(names))


def _listed_names(context: click.Context, option: click.Parameter, names: str | None) -> tuple[str, ...]:
    return host_names(context, option, tuple(filter(None, (name.strip() for name in (names or "").split(",")))))


def _etcd_url(_context: click.Context, _option: click.Parameter, url: str | None) -> str | None:
    if url:
        try:
            parse(url)
        except ShardmqError as fault:
            raise click.BadParameter(str(fault)) from fault
    return url or None


JOIN: Final = click.option(
    "--join",
    callback=_etcd_url,
    metavar="URL",
    envvar=JOIN_VARIABLE,
    show_envvar=True,
    help="Be one of several hosts of a broker that etcd knows: etcds://user:password@h1:2379,h2:2379/prefix?cacertfile="
    "ca.pem; etcd:// is without TLS, for members on this machine.",
)
ETCD: Final = click.option(
    "--join",
    callback=_etcd_url,
    metavar="URL",
    envvar=JOIN_VARIABLE,
    show_envvar=True,
    help="Where etcd is, as the hosts have it: etcds://user:password@h1:2379,h2:2379/prefix?cacertfile=ca.pem.",
)
HOST: Final = click.option(
    "--host-name",
    callback=_host_name,
    metavar="NAME",
    envvar="SHARDMQ_HOST_NAME",
    show_envvar=True,
    help="Name of this host, which it keeps for good.",
)
_HOST_OPTIONS: Final = (
    JOIN,
    HOST,
    click.option(
        "--host-address",
        metavar="ADDRESS",
        envvar="SHARDMQ_HOST_ADDRESS",
        show_envvar=True,
        help="Address at which the other hosts reach this one.",
    ),
    click.option(
        "--bus-port",
        type=WholeNumber(1, 65_535),
        default=DEFAULT_BUS_PORT,
        show_default=True,
        envvar="SHARDMQ_BUS_PORT",
        show_envvar=True,
        help="The first of the ports for other hosts: two for the coordinator, and two for each shard.",
    ),
    click.option(
        "--replicas",
        type=WholeNumber(1, 7),
        envvar="SHARDMQ_REPLICAS",
        show_envvar=True,
        help=f"How many hosts have each shard.  [default: {DEFAULT_REPLICAS}, or what the broker was made with]",
    ),
    click.option(
        "--min-in-sync",
        type=WholeNumber(1, 7),
        envvar="SHARDMQ_MIN_IN_SYNC",
        show_envvar=True,
        help="Publishes are refused while fewer of them are in sync.  [default: 1, or what the broker was made with]",
    ),
    click.option(
        "--hosts",
        callback=_listed_names,
        metavar="NAME,…",
        envvar="SHARDMQ_HOSTS",
        show_envvar=True,
        help="Hosts to wait for before the broker is made, so that it is spread over them from the first message on.",
    ),
    KEYS,
    INSECURE_BUS,
)
_NAMES: Final = ("host_address", "replicas", "min_in_sync", "hosts", "keys", "insecure_bus")


def host_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of one host of several. The command gets them as `joining`: `HostOptions`, or None without --join."""

    @functools.wraps(command)
    def with_host(**values: Any) -> Any:
        return command(joining=_read(values), **values)

    return all_of(with_host, _HOST_OPTIONS)


def _read(values: dict[str, Any]) -> HostOptions | None:
    """Take the options out of all that were given."""
    join, name, bus_port = values.pop("join"), values.pop("host_name"), values.pop("bus_port")
    given = {option: values.pop(option) for option in _NAMES}
    context = click.get_current_context()
    if join is None:
        for option in _NAMES:
            if context.get_parameter_source(option) is ParameterSource.COMMANDLINE:
                raise click.UsageError(f"--{option.replace('_', '-')} is for one of several hosts; give --join, too")
        return None
    if name is None or given["host_address"] is None:
        raise click.UsageError(
            "--join needs --host-name, which this host keeps, and --host-address, where others reach it"
        )
    says_shards = context.get_parameter_source("shards") is not ParameterSource.DEFAULT
    return HostOptions(
        join,
        name,
        given["host_address"],
        bus_port,
        values["shards"] if says_shards else None,
        given["replicas"],
        given["min_in_sync"],
        given["hosts"],
        given["keys"],
        given["insecure_bus"],
    )


@dataclass(frozen=True, slots=True)
class ReplicaChoice:
    """What the options of one process on one of several hosts say.

    Attributes:
        join: URL of etcd; "" for a process of a broker on one machine.
        host_name: of its host.
        broker: id of the broker.
        listen_replica: bus address for other replicas of the same group.
    """

    join: str = ""
    host_name: str = ""
    broker: str = ""
    listen_replica: str = ""

    @property
    def is_joined(self) -> bool:
        """Whether it is of a broker on several hosts."""
        return bool(self.join)

    def name_of(self, process: str) -> str:
        """The name of a process, and of its keys, as `a.shard-0`."""
        return f"{self.host_name}.{process}" if self.is_joined else process


_REPLICA_OPTIONS: Final = (
    JOIN,
    HOST,
    *(
        click.option(f"--{name}", default="", metavar="TEXT", help=help)
        for name, help in (
            ("broker", "Id of the broker."),
            ("listen-replica", "Address for other replicas of the same group, as tcp://10.0.0.2:5681."),
        )
    ),
)


def replica_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of a process of `up --join`. The command gets them as `replica`, a `ReplicaChoice`."""

    @functools.wraps(command)
    def with_replica(
        *, join: str | None, host_name: str | None, broker: str, listen_replica: str, **values: Any
    ) -> Any:
        is_a_process = click.get_current_context().invoked_subcommand is None  # else `shardmq shard list`
        if join is not None and host_name is None and is_a_process:
            raise click.UsageError("--join needs --host-name")
        choice = ReplicaChoice(join, host_name or "", broker, listen_replica) if join else ReplicaChoice()
        return command(replica=choice, **values)

    return all_of(with_replica, _REPLICA_OPTIONS)
