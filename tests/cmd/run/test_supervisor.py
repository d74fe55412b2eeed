"""`shardmq up`: starts, restarts, refuses, stops. Real processes."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.cmd.run.invocation import command, environment
from shardmq.cmd.run.locks import hold_data_dir, hold_port, private_directory
from shardmq.cmd.run.up import default_gateways
from shardmq.errors import ShardmqError, StartupRefused, StoreRefused
from shardmq.runtime.cores import core_count

StartBroker = Callable[..., Broker]


def put(broker: Broker, queue: str, body: bytes) -> None:
    with shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        channel.queue_declare(queue, durable=True)
        channel.basic_publish("", queue, body)


def get(broker: Broker, queue: str) -> bytes | None:
    with shardmq.connect(broker.url) as connection:
        message = connection.channel().basic_get(queue, auto_ack=True)
    return None if message is None else message.body


def test_a_process_whose_disk_cannot_read_its_store_ends_with_advice(start_broker: StartBroker) -> None:
    broker = start_broker(shards=1)
    known = len(broker.notices)
    broker.kill("shard-0", signal.SIGBUS)
    notice = broker.wait_for("exited", "shard-0", after=known)
    assert f"`shardmq store check {broker.data_dir}`" in notice.text


def test_up_says_where_it_is_and_which_processes_run(start_broker: StartBroker) -> None:
    broker = start_broker(shards=2, gateways=2)
    notice = broker.wait_for("up")
    assert notice.url == broker.url
    assert notice.data_dir == str(broker.data_dir)
    assert set(broker.pids) == {"coordinator", "shard-0", "shard-1", "gateway-0", "gateway-1"}
    assert all(psutil.Process(pid).ppid() == broker.pid for pid in broker.pids.values())


@pytest.mark.parametrize("name", ["coordinator", "shard-1", "gateway-0"])
def test_a_killed_process_is_started_again_and_serves(start_broker: StartBroker, name: str) -> None:
    broker = start_broker(shards=2)
    put(broker, "before", b"1")
    pid = broker.pids[name]
    known = len(broker.notices)
    broker.kill_and_wait(name)
    notice = broker.wait_for("exited", name, after=known)
    assert (notice.pid, notice.signal, notice.seconds) == (pid, "SIGKILL", 0.1)
    assert broker.pids[name] != pid
    assert f"{name} (process {pid}) was killed by SIGKILL" in notice.text
    put(broker, "after", b"2")
    assert (get(broker, "before"), get(broker, "after")) == (b"1", b"2")


def test_a_process_that_keeps_dying_is_given_longer_pauses(start_broker: StartBroker) -> None:
    broker = start_broker(shards=1)
    for _ in range(3):
        broker.kill_and_wait("shard-0")
    assert [notice.seconds for notice in broker.notices if notice.event == "exited"] == [0.1, 0.2, 0.4]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_by_signal_is_clean_and_goes_backwards(start_broker: StartBroker, number: signal.Signals) -> None:
    broker = start_broker(shards=2)
    pids = list(broker.pids.values())
    os.kill(broker.pid, number)
    assert broker.wait() == 0
    assert [notice.event for notice in broker.notices] == ["up", "stopping", "stopped"]
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_what_was_confirmed_is_there_after_a_restart(start_broker: StartBroker) -> None:
    broker = start_broker(shards=2)
    put(broker, "kept", b"still here")
    broker.restart()
    assert get(broker, "kept") == b"still here"


def test_killing_the_supervisor_kills_its_processes_and_loses_nothing(start_broker: StartBroker) -> None:
    broker = start_broker(shards=2)
    put(broker, "kept", b"still here")
    processes = [psutil.Process(pid) for pid in broker.pids.values()]
    broker.kill_everything()
    _, alive = psutil.wait_procs(processes, timeout=5)
    assert alive == []
    broker.start()
    assert get(broker, "kept") == b"still here"


def test_a_process_that_ignores_sigterm_is_killed_on_the_second_interrupt(start_broker: StartBroker) -> None:
    broker = start_broker(shards=1)
    broker.kill("shard-0", signal.SIGSTOP)
    os.kill(broker.pid, signal.SIGINT)
    broker.wait_for("stopping")
    os.kill(broker.pid, signal.SIGINT)
    assert broker.wait(timeout=5) == 130


def test_a_data_directory_in_use_is_refused(start_broker: StartBroker) -> None:
    broker = start_broker(shards=1)
    second = subprocess.run(
        command("up", "--port", "0", "--data-dir", str(broker.data_dir)),
        env=environment(),
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert second.returncode == 78
    assert "is in use by another `shardmq up`" in second.stderr
    assert "Traceback" not in second.stderr


def test_a_port_in_use_is_refused_even_by_another_broker(start_broker: StartBroker, tmp_path: Path) -> None:
    broker = start_broker(shards=1)
    second = subprocess.run(
        command("up", "--port", str(broker.port), "--data-dir", str(tmp_path / "other")),
        env=environment(),
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert second.returncode == 78
    assert f"cannot listen on 127.0.0.1 port {broker.port}" in second.stderr


def test_fewer_shards_than_hold_data_are_refused_with_a_sentence(start_broker: StartBroker) -> None:
    broker = start_broker(shards=4)
    with shardmq.connect(broker.url) as connection:
        for number in range(16):
            connection.channel().queue_declare(f"queue-{number}", durable=True)
    broker.stop()
    broker.shards = 2
    with pytest.raises(ShardmqError, match="shard"):
        broker.start()
    assert broker.wait() == 78
    assert "Traceback" not in broker.last_words()


def test_more_shards_take_new_queues_and_leave_old_ones_where_they_are(start_broker: StartBroker) -> None:
    broker = start_broker(shards=1)
    put(broker, "old", b"old")
    broker.stop()
    broker.shards = 4
    broker.start()
    with shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        for number in range(32):
            channel.queue_declare(f"new-{number}", durable=True)
        shards = {row["name"]: row["shard"] for row in connection.topology("queues")}
    assert shards["old"] == 0
    assert set(shards.values()) == {0, 1, 2, 3}
    assert get(broker, "old") == b"old"


def test_a_store_that_is_not_ours_stops_everything_and_stays_untouched(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    foreign = tmp_path / "data" / "shard-0" / "data.mdb"
    foreign.parent.mkdir(parents=True)
    foreign.write_bytes(b"somebody else's" * 1000)
    with pytest.raises(ShardmqError, match=r"data\.mdb"):
        start_broker(shards=2, data_dir=tmp_path / "data")
    assert foreign.read_bytes() == b"somebody else's" * 1000


def test_two_gateways_share_the_port(start_broker: StartBroker) -> None:
    broker = start_broker(shards=1, gateways=2)

    def clients(name: str) -> int:
        connections = psutil.Process(broker.pids[name]).net_connections(kind="tcp")
        return sum(connection.status == psutil.CONN_ESTABLISHED for connection in connections)

    with contextlib.ExitStack() as stack:
        for _ in range(64):  # the kernel spreads them by a hash; all 64 on one side is one in 10^19
            if clients("gateway-0") and clients("gateway-1"):
                break
            stack.enter_context(shardmq.connect(broker.url))
        assert clients("gateway-0")
        assert clients("gateway-1")


@pytest.mark.parametrize(
    ("cores", "shards", "gateways"),
    [(1, 4, 1), (2, 4, 1), (3, 4, 1), (4, 4, 2), (8, 4, 4), (16, 4, 8), (64, 4, 8), (16, 1, 2), (256, 64, 64)],
)
def test_there_is_a_gateway_for_every_two_cores_as_far_as_shards_go(cores: int, shards: int, gateways: int) -> None:
    assert default_gateways(cores, shards) == gateways


def test_a_broker_chooses_its_gateways_and_says_so(tmp_path: Path) -> None:
    with subprocess.Popen(
        command(
            "up",
            "--port",
            "0",
            "--management-port",
            "off",
            "--shards",
            "1",
            "--data-dir",
            str(tmp_path / "data"),
            "--json",
        ),
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    ) as broker:
        assert broker.stdout is not None
        notice = next(told for told in map(json.loads, broker.stdout) if told["event"] == "up")
        broker.terminate()
        assert broker.wait(20) == 0
    wanted = default_gateways(core_count(), 1)
    assert sum(name.startswith("gateway-") for name in notice["processes"]) == wanted
    assert notice["cores"] == core_count()
    assert notice["text"].endswith(f"gateways: {wanted}, cores: {core_count()}")


def test_a_held_data_directory_cannot_be_held_again(tmp_path: Path) -> None:
    with (
        hold_data_dir(tmp_path / "data"),
        pytest.raises(StoreRefused, match="in use"),
        hold_data_dir(tmp_path / "data"),
    ):
        pass
    with hold_data_dir(tmp_path / "data"):
        pass


def test_a_file_is_no_data_directory(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with pytest.raises(StoreRefused, match="cannot be the data directory"), hold_data_dir(tmp_path / "data"):
        pass


def test_a_port_held_but_not_listened_on_can_be_held_again() -> None:
    with hold_port("127.0.0.1", 0) as port, hold_port("127.0.0.1", port) as again:
        assert again == port


def test_a_port_somebody_listens_on_cannot_be_held() -> None:
    with socket.create_server(("127.0.0.1", 0), reuse_port=True) as server:
        port = server.getsockname()[1]
        with pytest.raises(StartupRefused, match="Address already in use"), hold_port("127.0.0.1", port):
            pass


def test_an_address_of_another_machine_cannot_be_held() -> None:
    with pytest.raises(StartupRefused, match="cannot listen on"), hold_port("192.0.2.1", 5672):
        pass


def test_the_socket_directory_is_private_and_short_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with private_directory() as path:
        assert path.stat().st_mode & 0o777 == 0o700
    assert not path.exists()
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    with pytest.raises(StartupRefused, match="set TMPDIR to a shorter path"), private_directory():
        pass


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A directory whose name leaves room for those of sockets."""
    with tempfile.TemporaryDirectory(prefix="test-") as folder:
        yield Path(folder)


def test_socket_directories_of_the_dead_are_removed_and_those_of_the_living_are_not(
    short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(short_path))
    left, unfinished, foreign = (short_path / f"shardmq-run-{name}" for name in ("left", "unfinished", "foreign"))
    for folder in (left, unfinished):
        folder.mkdir()
        (folder / "shard-0").touch()
    (left / "lock").touch()
    foreign.symlink_to(left)
    with private_directory() as living, private_directory() as second:
        assert living.is_dir()
        assert second.is_dir()
        assert not left.exists()
        assert unfinished.is_dir()
        assert foreign.is_symlink()
    assert not living.exists()


def test_a_killed_supervisors_sockets_are_removed_by_the_next(
    short_path: Path, start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:  # in this order: the broker ends before its directory does
    monkeypatch.setenv("TMPDIR", str(short_path))
    broker = start_broker(shards=1)
    (left,) = short_path.glob("shardmq-run-*")
    broker.kill_everything()
    assert left.is_dir()
    broker.start()
    (made,) = short_path.glob("shardmq-run-*")
    assert made != left
