"""What a host needs before it says in etcd that it is there: an address of its own, and keys.

A host that joins and then cannot run its processes has made a broker, or has replicas that nobody serves.
"""

import socket

from shardmq.bus.address import is_loopback
from shardmq.bus.curve import SECRET_SUFFIX, process_name
from shardmq.cmd.run.hosts.options import HostOptions
from shardmq.cmd.run.locks import is_wildcard
from shardmq.cmd.terminal.values import counted
from shardmq.errors import StartupRefused
from shardmq.replication.planning.cluster import COORDINATOR, shard_group


def check_needs(options: HostOptions, gateways: int) -> None:
    """Refuse to join as a host whose processes could not be reached, or could not call others.

    Args:
        options: of the host.
        gateways: how many it runs.

    Raises:
        StartupRefused: its address is none of this machine, or keys of its processes are missing.
    """
    if is_wildcard(options.address):
        raise StartupRefused(
            f"--host-address '{options.address}' stands for every address of this machine; name the one at which the "
            "other hosts reach it"
        )
    if fault := fault_of_port(options.address, 0):
        raise StartupRefused(
            f"--host-address {options.address} is no address of this machine ({fault}); name one that it has"
        )
    if options.keys is None:
        if not (options.is_insecure and is_loopback(options.bus_addresses(0)[COORDINATOR])):
            raise StartupRefused(
                "the links between hosts need keys: give --keys with the folder that `shardmq keys hosts` has made for "
                f"'{options.name}'; --insecure-bus is for loopback addresses"
            )
        return
    processes = [COORDINATOR, *map(shard_group, range(options.shards or 1))]
    processes += [f"gateway-{number}" for number in range(gateways)]
    names = [process_name(options.name, process) for process in processes]
    missing = [name for name in names if not (options.keys / f"{name}{SECRET_SUFFIX}").exists()]
    if missing:
        others = {path.name.partition(".")[0] for path in options.keys.glob(f"*.*{SECRET_SUFFIX}")} - {options.name}
        whose = f" (it has those of host {', '.join(sorted(others))})" if others else ""
        raise StartupRefused(
            f"{options.keys} lacks {counted(len(missing), 'key')} of host '{options.name}'{whose}, as that of "
            f"{missing[0]}; make those that are missing with `shardmq keys hosts`, naming all hosts, --shards and "
            "--gateways, and copy the folder of this host here"
        )


def fault_of_port(host: str, port: int) -> str:
    """Why a port cannot be listened at, 0 for any; "" where it can.

    Args:
        host: address of this machine.
        port: there.
    """
    try:
        (family, kind, protocol, _, address), *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        with socket.socket(family, kind, protocol) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
    except (OSError, OverflowError) as fault:
        return str(getattr(fault, "strerror", None) or fault)
    return ""
