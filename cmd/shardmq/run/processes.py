"""`shardmq shard`, `gateway` and `coordinator`: single processes of a broker, for systemd and several hosts."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from shardmq.cmd.run.hosts.options import ReplicaChoice, replica_options
from shardmq.cmd.terminal.numbers import WholeNumber
from shardmq.cmd.terminal.options import Command
from shardmq.cmd.terminal.process_options import (
    DATA_DIR,
    DEFINITIONS,
    DISK_FREE_LIMIT,
    MESSAGE_SIZE_MAX,
    OTLP_ENDPOINT,
    SHARDS,
    bus_options,
    log_options,
    memory_watermark,
    tls_options,
)
from shardmq.limits import SHARD_MEMORY_BYTES
from shardmq.runtime import notify
from shardmq.runtime.logs import LogOptions

if TYPE_CHECKING:
    from shardmq.bus.curve import CurveKeys
    from shardmq.runtime.tls import TlsOptions

KERNEL_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
NO_SHARDS: Final = "--shard (SHARDMQ_SHARDS) is missing: the address of shard 0, then of shard 1, …"
MEMORY_WATERMARK: Final = memory_watermark("this process takes", "0.6", "SHARDMQ_MEMORY_WATERMARK")


def listen_option(help: str) -> Callable[[Command], Command]:
    """The option for the address at which a process listens for the others."""
    return click.option("--listen", metavar="ADDRESS", envvar="SHARDMQ_LISTEN", show_envvar=True, help=help)


def security(keys: Path | None, name: str, insecure_bus: bool) -> "CurveKeys":
    """Keys that protect the links of a process."""
    from shardmq.bus.curve import CurveKeys

    return CurveKeys(keys, name, insecure_bus)


class ShardCommands(click.Group):
    """Commands about shards of several hosts, beside the process: imported when one of them is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Their names."""
        del ctx
        return ["list", "add", "transfer", "move", "elect"]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """One of them, imported now."""
        if cmd_name not in self.list_commands(ctx):
            return None
        from shardmq.cmd.hosts import growth, shard

        command = growth.shard_add if cmd_name == "add" else getattr(shard, f"shard_{cmd_name}")
        assert isinstance(command, click.Command)
        return command


@click.command(cls=ShardCommands, invoke_without_command=True, subcommand_metavar="")
@click.option(
    "--index",
    type=WholeNumber(0),
    envvar="SHARDMQ_INDEX",
    show_envvar=True,
    help="Number of this shard, from 0.",
)
@DATA_DIR
@listen_option("Address for gateways and coordinator, as tcp://10.0.0.2:5680.  [default: its own of --shard]")
@click.option(
    "--shard",
    "shards",
    multiple=True,
    metavar="ADDRESS",
    envvar="SHARDMQ_SHARDS",
    show_envvar=True,
    help="Addresses of all shards, in their order; this one listens on its own unless --listen says otherwise.",
)
@click.option(
    "--memory-bytes",
    type=WholeNumber(1 << 20),
    default=SHARD_MEMORY_BYTES,
    envvar="SHARDMQ_MEMORY_BYTES",
    show_envvar=True,
    show_default=True,
    help="Bytes of messages kept in memory; further messages are read from disk.",
)
@MEMORY_WATERMARK
@DISK_FREE_LIMIT
@replica_options
@bus_options
@log_options
def shard(
    *,
    index: int | None,
    data_dir: Path,
    listen: str | None,
    shards: tuple[str, ...],
    memory_bytes: int,
    memory_watermark: int | None,
    disk_free_limit: int | None,
    replica: ReplicaChoice,
    keys: Path | None,
    insecure_bus: bool,
    log: LogOptions,
) -> None:
    """Run one shard: the owner of some queues and of their store."""
    if click.get_current_context().invoked_subcommand is not None:
        return
    if index is None:
        raise click.UsageError("--index is missing: the number of this shard, from 0")
    if listen is None:
        if index >= len(shards):
            raise click.UsageError(
                f"shard {index} has no address among the {len(shards)} of --shard (SHARDMQ_SHARDS): "
                "add it at the end there, or give --listen"
            )
        listen = shards[index]
    log.begin(f"shard-{index}")
    notify.die_with_parent()
    from shardmq.shards.process import ShardOptions, run

    run(
        ShardOptions(
            index=index,
            data_dir=data_dir,
            listen=listen,
            memory_bytes=memory_bytes,
            rss_bytes_max=memory_watermark,
            disk_free_bytes_min=disk_free_limit,
            security=security(keys, replica.name_of(f"shard-{index}"), insecure_bus),
            join=replica.join,
            host_name=replica.host_name,
            broker=replica.broker,
            listen_replica=replica.listen_replica,
        )
    )


@click.command(short_help="Run the coordinator: the authority on what exists.")
@DATA_DIR
@listen_option("Address for gateways, as tcp://10.0.0.1:5679.  [default: that of --coordinator]")
@click.option(
    "--coordinator",
    "address",
    metavar="ADDRESS",
    envvar="SHARDMQ_COORDINATOR",
    show_envvar=True,
    help="Address at which gateways reach it.",
)
@SHARDS
@click.option(
    "--boot-id",
    default="",
    envvar="SHARDMQ_BOOT_ID",
    show_envvar=True,
    help="Transient queues and messages last until this changes.  [default: the kernel's boot id]",
)
@DEFINITIONS
@replica_options
@bus_options
@log_options
def coordinator(
    *,
    data_dir: Path,
    listen: str | None,
    address: str | None,
    shards: tuple[str, ...],
    boot_id: str,
    definitions: Path | None,
    replica: ReplicaChoice,
    keys: Path | None,
    insecure_bus: bool,
    log: LogOptions,
) -> None:
    """Run the coordinator: the authority on exchanges, queues, bindings and users."""
    listen = listen or address
    if listen is None:
        raise click.UsageError("give --listen, or --coordinator (SHARDMQ_COORDINATOR), where gateways call it")
    if not shards and not replica.is_joined:
        raise click.UsageError(NO_SHARDS)
    log.begin("coordinator")
    notify.die_with_parent()
    from shardmq.coordinator.process import CoordinatorOptions, run

    run(
        CoordinatorOptions(
            data_dir=data_dir,
            listen=listen,
            shards=shards,
            boot_id=boot_id or KERNEL_BOOT_ID.read_text().strip(),
            security=security(keys, replica.name_of("coordinator"), insecure_bus),
            definitions=definitions,
            join=replica.join,
            host_name=replica.host_name,
            broker=replica.broker,
            listen_replica=replica.listen_replica,
        )
    )


@click.command()
@click.option(
    "--name",
    default="gateway-0",
    envvar="SHARDMQ_NAME",
    show_envvar=True,
    show_default=True,
    help="Unique among the gateways of a broker.",
)
@click.option(
    "--host",
    default="127.0.0.1",
    envvar="SHARDMQ_HOST",
    show_envvar=True,
    show_default=True,
    help="Address for clients.",
)
@click.option(
    "--port",
    type=WholeNumber(1, 65_535),
    default=5672,
    envvar="SHARDMQ_PORT",
    show_envvar=True,
    show_default=True,
    help="Port for clients; several gateways of one host may share it.",
)
@click.option(
    "--coordinator",
    metavar="ADDRESS",
    envvar="SHARDMQ_COORDINATOR",
    show_envvar=True,
    help="Address of the coordinator.",
)
@SHARDS
@MEMORY_WATERMARK
@MESSAGE_SIZE_MAX
@OTLP_ENDPOINT
@replica_options
@bus_options
@tls_options
@log_options
def gateway(
    *,
    name: str,
    host: str,
    port: int,
    coordinator: str | None,
    shards: tuple[str, ...],
    memory_watermark: int | None,
    message_size_max: int,
    otlp_endpoint: str | None,
    replica: ReplicaChoice,
    keys: Path | None,
    insecure_bus: bool,
    tls: "TlsOptions | None",
    log: LogOptions,
) -> None:
    """Run one gateway: what clients connect to."""
    from shardmq.bus.curve import GATEWAY, role_of
    from shardmq.gateway.process import GatewayOptions, run

    if role_of(name) != GATEWAY:
        raise click.UsageError(f"'{name}' is the name of a {role_of(name)}; name a gateway otherwise, as gateway-0")
    if not replica.is_joined:
        if coordinator is None:
            raise click.UsageError("--coordinator (SHARDMQ_COORDINATOR) is missing: the coordinator's address")
        if not shards:
            raise click.UsageError(NO_SHARDS)
    log.begin(name)
    notify.die_with_parent()

    run(
        GatewayOptions(
            name=name,
            host=host,
            port=port,
            coordinator=coordinator or "",
            shards=shards,
            security=security(keys, name, insecure_bus),
            tls=tls,
            rss_bytes_max=memory_watermark,
            message_bytes_max=message_size_max,
            otlp_endpoint=otlp_endpoint,
            join=replica.join,
        )
    )
