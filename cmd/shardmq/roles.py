"""`shardmq shard`, `gateway` and `coordinator`: one process of the broker, alone, for systemd and for other hosts."""

from pathlib import Path
from typing import Final

import click

from shardmq import notify
from shardmq.limits import SHARD_MEMORY_BYTES

DATA_DIR: Final = click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("shardmq-data"),
    envvar="SHARDMQ_DATA_DIR",
    show_envvar=True,
    show_default=True,
    help="Directory of the stores; each process has its own folder in it.",
)
SHARDS: Final = click.option(
    "--shard",
    "shards",
    multiple=True,
    required=True,
    metavar="ADDRESS",
    envvar="SHARDMQ_SHARDS",
    show_envvar=True,
    help="Address of shard 0, then of shard 1, …: one option for each (in the environment separated by spaces).",
)
KERNEL_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


@click.command()
@click.option(
    "--index",
    type=click.IntRange(0),
    required=True,
    envvar="SHARDMQ_INDEX",
    show_envvar=True,
    help="Which shard this is; counts from 0.",
)
@DATA_DIR
@click.option(
    "--listen",
    required=True,
    metavar="ADDRESS",
    envvar="SHARDMQ_LISTEN",
    show_envvar=True,
    help="Address for gateways and coordinator, as tcp://10.0.0.2:5680 or ipc:///run/shardmq/shard-0.",
)
@click.option(
    "--memory-bytes",
    type=click.IntRange(1 << 20),
    default=SHARD_MEMORY_BYTES,
    envvar="SHARDMQ_MEMORY_BYTES",
    show_envvar=True,
    show_default=True,
    help="Message bytes kept in memory; what is above is read back from disk.",
)
def shard(*, index: int, data_dir: Path, listen: str, memory_bytes: int) -> None:
    """Run one shard: the owner of some queues and of their store."""
    notify.die_with_parent()
    from shardmq.shards.process import ShardOptions, run

    run(ShardOptions(index=index, data_dir=data_dir, listen=listen, memory_bytes=memory_bytes))


@click.command(short_help="Run the coordinator: the authority on what exists.")
@DATA_DIR
@click.option(
    "--listen",
    required=True,
    metavar="ADDRESS",
    envvar="SHARDMQ_LISTEN",
    show_envvar=True,
    help="Address for gateways, as tcp://10.0.0.2:5679 or ipc:///run/shardmq/coordinator.",
)
@SHARDS
@click.option(
    "--boot-id",
    default="",
    envvar="SHARDMQ_BOOT_ID",
    show_envvar=True,
    help="What is not durable lives as long as this stays the same.  [default: the kernel's boot id]",
)
def coordinator(*, data_dir: Path, listen: str, shards: tuple[str, ...], boot_id: str) -> None:
    """Run the coordinator: the authority on exchanges, queues, bindings and users."""
    notify.die_with_parent()
    from shardmq.coordinator.process import CoordinatorOptions, run

    boot_id = boot_id or KERNEL_BOOT_ID.read_text().strip()
    run(CoordinatorOptions(data_dir=data_dir, listen=listen, shards=shards, boot_id=boot_id))


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
    type=click.IntRange(1, 65_535),
    default=5672,
    envvar="SHARDMQ_PORT",
    show_envvar=True,
    show_default=True,
    help="Port for clients; several gateways of one host may share it.",
)
@click.option(
    "--coordinator",
    required=True,
    metavar="ADDRESS",
    envvar="SHARDMQ_COORDINATOR",
    show_envvar=True,
    help="Address of the coordinator.",
)
@SHARDS
def gateway(*, name: str, host: str, port: int, coordinator: str, shards: tuple[str, ...]) -> None:
    """Run one gateway: what clients connect to."""
    notify.die_with_parent()
    from shardmq.gateway.process import GatewayOptions, run

    run(GatewayOptions(name=name, host=host, port=port, coordinator=coordinator, shards=shards))
