"""`shardmq up` under systemd's watchdog: it beats, says what is wrong, and replaces a process that hangs."""

import signal
import socket
from pathlib import Path

from shardmq.cmd.run.broker import Broker
from shardmq.cmd.run.locks import private_directory
from shardmq.runtime import notify


def test_a_process_that_hangs_is_told_of_and_replaced(tmp_path: Path) -> None:
    with private_directory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(folder / "notify"))
        systemd.settimeout(30)

        def hear(wanted: bytes) -> None:
            while wanted not in systemd.recv(4096):
                pass

        variables = {
            notify.NOTIFY_SOCKET: str(folder / "notify"),
            notify.WATCHDOG_USEC: "4000000",
            notify.WATCHDOG_PID: "",
        }
        broker = Broker(tmp_path / "data", shards=1, variables=variables)
        try:
            broker.start()
            hear(b"STATUS=serving")
            hear(b"WATCHDOG=1")
            hung = broker.kill("shard-0", signal.SIGSTOP)
            assert "has not turned its loop" in broker.wait_for("hung", "shard-0").text
            broker.wait_for("ready", "shard-0")
            assert broker.pids["shard-0"] != hung
            hear(b"shard")  # who waits for it, or that it is not ready
            hear(b"STATUS=serving")
        finally:
            broker.close()
