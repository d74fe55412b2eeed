"""The processes of a broker, with the command line of each, and the options that these come from."""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from shardmq.cmd.run.child import Child
from shardmq.cmd.run.locks import client_host
from shardmq.cmd.terminal.process_options import NO_MANAGEMENT, ManagementChoice, tls_words
from shardmq.limits import MESSAGE_BYTES_MAX
from shardmq.runtime.logs import DEFAULT_LOG, LogOptions
from shardmq.runtime.memory import memory_default
from shardmq.topology.parameters.shovel import RUNNER_SECRET

if TYPE_CHECKING:
    from shardmq.runtime.tls import TlsOptions

COORDINATOR, SHARD, GATEWAY, MANAGEMENT, SHOVELS = range(5)
"""Stages of stopping; the highest stops first."""


Roster = Callable[["BrokerOptions", Path, Callable[[Child], None]], list[Child]]
"""Makes the processes of a broker, the coordinator first: from its options, the folder for their sockets, and what is
called when one of them is ready."""


@dataclass(frozen=True, slots=True)
class BrokerOptions:
    """The options of a whole broker on one machine.

    Attributes:
        shards: number of shard processes.
        gateways: number of gateway processes.
        host: address for clients.
        port: port for clients without TLS; 0 takes a free one.
        data_dir: data directory of the broker.
        memory_bytes: memory watermark of shards and gateways together; publishers are blocked above it. None for the
            default.
        disk_free_bytes: free disk space below which publishers are blocked; None for the default.
        tls: the port for clients with TLS; None without TLS.
        message_bytes_max: largest body of a message.
        log: log level and format of the processes.
        cores: how many the number of gateways was chosen for; None where it was given.
        management: the management process.
        definitions: a file of definitions, or a folder of them, imported at the start; None for none.
        otlp_endpoint: URL of a receiver of spans; None for no spans.
    """

    shards: int
    gateways: int
    host: str
    port: int
    data_dir: Path
    memory_bytes: int | None = None
    disk_free_bytes: int | None = None
    tls: "TlsOptions | None" = None
    message_bytes_max: int = MESSAGE_BYTES_MAX
    log: LogOptions = DEFAULT_LOG
    cores: int | None = None
    management: ManagementChoice = NO_MANAGEMENT
    definitions: Path | None = None
    otlp_endpoint: str | None = None

    @property
    def management_url(self) -> str | None:
        """The URL of the management process on this machine; None where there is none."""
        chosen = self.management
        scheme = "http" if chosen.certificate is None else "https"
        return None if chosen.port is None else f"{scheme}://{client_host(chosen.host)}:{chosen.port}/"

    @property
    def has_plain(self) -> bool:
        """Whether there is a port without TLS."""
        return self.tls is None or not self.tls.is_alone

    @property
    def url(self) -> str:
        """The URL for clients on this machine; that of the port without TLS where there is one."""
        if self.has_plain or self.tls is None:
            return f"shardmq://guest:guest@{client_host(self.host)}:{self.port}/"
        return f"shardmqs://guest:guest@{client_host(self.tls_host)}:{self.tls.port}/"

    @property
    def own_url(self) -> str:
        """The URL for a process of this broker: the certificate at its own port need not have that port's address."""
        return self.url if self.has_plain else f"{self.url}?verify=verify_none"

    @property
    def tls_host(self) -> str:
        """The address for clients with TLS."""
        return (self.tls.host if self.tls is not None else None) or self.host

    @property
    def watermarks(self) -> tuple[str, ...]:
        """Command-line words for the memory watermark of one process: its part of the broker's."""
        members = self.shards + self.gateways
        wanted = self.memory_bytes
        return "--memory-watermark", f"{memory_default(members) if wanted is None else max(wanted // members, 2)}B"

    @property
    def definitions_words(self) -> tuple[str, ...]:
        """Words of the coordinator's command line."""
        return () if self.definitions is None else ("--definitions", str(self.definitions.resolve()))

    @property
    def shard_words(self) -> tuple[str, ...]:
        """Words of a shard's command line that are the same for all of them."""
        disk = () if self.disk_free_bytes is None else ("--disk-free-limit", str(self.disk_free_bytes))
        return *self.watermarks, *disk, *self.log.words

    @property
    def gateway_words(self) -> tuple[str, ...]:
        """Words of a gateway's command line that are the same for all of them."""
        place = ("--host", self.host, "--port", str(self.port))
        size = ("--message-size-max", str(self.message_bytes_max))
        spans = () if self.otlp_endpoint is None else ("--otlp-endpoint", self.otlp_endpoint)
        return *place, *self.watermarks, *size, *tls_words(self.tls), *self.log.words, *spans


def children(options: BrokerOptions, run_dir: Path, on_ready: Callable[[Child], None]) -> list[Child]:
    """The processes of a broker on one machine."""

    def address(name: str) -> str:
        return f"ipc://{run_dir / name}"

    data_dir = ("--data-dir", str(options.data_dir))
    shards = [f"shard-{index}" for index in range(options.shards)]
    to_shards = tuple(word for name in shards for word in ("--shard", address(name)))
    log = options.log.words
    to_coordinator = address("coordinator")
    boot_id = secrets.token_hex(16)
    coordinator = ("coordinator", *data_dir, "--listen", to_coordinator, *to_shards, "--boot-id", boot_id, *log)
    members = [Child("coordinator", COORDINATOR, (*coordinator, *options.definitions_words), run_dir, on_ready)]
    for index, name in enumerate(shards):
        shard = ("shard", "--index", str(index), *data_dir, "--listen", address(name), *options.shard_words)
        members.append(Child(name, SHARD, shard, run_dir, on_ready))
    to_others = ("--coordinator", to_coordinator, *to_shards)
    return [*members, *front(options, Place(to_others), run_dir, on_ready)]


@dataclass(frozen=True, slots=True)
class Place:
    """Where gateways are.

    Attributes:
        to_others: words of their command line that say where coordinator and shards are.
        host: name of this one of several hosts, as "a"; "" for the only one.
        variables: added to their environment.
    """

    to_others: tuple[str, ...]
    host: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)


def front(options: BrokerOptions, place: Place, run_dir: Path, on_ready: Callable[[Child], None]) -> list[Child]:
    """Gateways, and what talks to them: management and shovels.

    Args:
        options: of the broker.
        place: where the gateways are.
        run_dir: folder for the processes' sockets.
        on_ready: called when a process is ready.
    """
    secret = {RUNNER_SECRET: secrets.token_urlsafe(32)}
    log = options.log.words
    members = []
    for index in range(options.gateways):
        name = f"gateway-{index}"
        whole_name = f"{place.host}.{name}" if place.host else name
        # The name comes first: the title of a fork is cut short where the environment of `up` is small.
        gateway = ("gateway", "--name", whole_name, *place.to_others, *options.gateway_words)
        members.append(Child(name, GATEWAY, gateway, run_dir, on_ready, variables={**place.variables, **secret}))
    if options.management.port is not None:
        management = ("management", "--url", options.own_url, *options.management.words, *log)
        members.append(Child("management", MANAGEMENT, management, run_dir, on_ready))
    shovels = ("shovels", "--url", options.own_url, *log)
    members.append(Child("shovels", SHOVELS, shovels, run_dir, on_ready, variables=secret, is_on_demand=True))
    return members
