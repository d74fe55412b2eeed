"""Celery: workers as processes of their own, and what an application asks of them."""

import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import celery
import pytest
from celery.exceptions import TaskRevokedError

import shardmq
from shardmq.cmd.run.broker import Broker

SECONDS: Final = 60.0
CELERY: Final = (sys.executable, "-m", "celery")
PROGRAMS: Final = Path(__file__).parent / "programs"


def until(what: Callable[[], Any], why: str = "it did not happen") -> Any:
    """What becomes true, when it has."""
    deadline = time.monotonic() + SECONDS
    while not (found := what()):
        assert time.monotonic() < deadline, why
        time.sleep(0.05)
    return found


class Worker:
    """A Celery worker, ready when this is made."""

    def __init__(self, folder: Path, url: str, name: str, *options: str, **environment: str) -> None:
        self.name = f"{name}@tests"
        self.log = folder / f"{name}.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*CELERY, "-A", "celery_tasks", "worker", "-n", self.name, "-l", "INFO", *options],
                env={**os.environ, "PYTHONPATH": str(PROGRAMS), "TASKS_URL": url, **environment},
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        until(
            lambda: f"{self.name} ready." in self.said or self.process.poll() is not None, "the worker does not start"
        )
        assert self.process.poll() is None, self.said

    @property
    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and wait for the end; returns the exit code."""
        self.process.send_signal(number)
        try:
            return self.process.wait(SECONDS)
        finally:
            self.process.kill()


@pytest.fixture(scope="module")
def tasks(url: str) -> Iterator[Any]:
    """The application, as the module of its tasks."""
    os.environ["TASKS_URL"] = url
    spec = importlib.util.spec_from_file_location("celery_tasks", PROGRAMS / "celery_tasks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    module.app.close()
    del os.environ["TASKS_URL"]


@pytest.fixture(scope="module")
def app(tasks: Any) -> celery.Celery:
    application: celery.Celery = tasks.app
    return application


StartWorker = Callable[..., Worker]


@pytest.fixture(scope="module")
def start_worker(tmp_path_factory: pytest.TempPathFactory, url: str) -> Iterator[StartWorker]:
    """Starts workers: `start_worker("name", "-Q", "tasks.late")`."""
    folder = tmp_path_factory.mktemp("celery")
    workers: list[Worker] = []

    def start(name: str, *options: str, **environment: str) -> Worker:
        workers.append(Worker(folder, url, name, *options, **environment))
        return workers[-1]

    yield start
    for worker in workers:
        if worker.process.poll() is None:
            worker.stop(signal.SIGQUIT)
        print(worker.said)


@pytest.fixture(scope="module", autouse=True)
def worker(start_worker: StartWorker) -> Worker:
    """The worker of most tests: two threads, with all events."""
    queues = "tasks,tasks.europe,tasks.asia"
    return start_worker("main", "--pool", "threads", "--concurrency", "2", "-Q", queues, "--task-events")


def start_alone(start_worker: StartWorker, name: str, queue: str, pool: str = "solo") -> Worker:
    """A worker that does one task at a time, and takes no other meanwhile where that is acknowledged late.

    A `solo` one does nothing else meanwhile: it may have a task before it says that it is ready, and has no heartbeats.
    """
    options = ("--without-gossip", "--without-mingle", "--prefetch-multiplier", "1", "--concurrency", "1")
    return start_worker(name, "--pool", pool, "-Q", queue, *options)


def test_results_come_back_by_rpc(tasks: Any) -> None:
    results = [tasks.add.delay(number, 1) for number in range(100)]
    assert [result.get(timeout=SECONDS) for result in results] == list(range(1, 101))


def test_exceptions_come_back_by_rpc(tasks: Any) -> None:
    with pytest.raises(ValueError, match="of course"):
        tasks.fail.delay().get(timeout=SECONDS)


def test_tasks_are_tried_again_after_their_countdowns(tasks: Any) -> None:
    assert tasks.try_again.delay(3).get(timeout=SECONDS) == 3


def test_tasks_wait_for_their_time(tasks: Any) -> None:
    begun = time.time()
    assert tasks.now.apply_async(countdown=1.0).get(timeout=SECONDS) >= begun + 1.0


def test_chains_and_groups(tasks: Any) -> None:
    chain = tasks.add.s(1, 2) | tasks.add.s(3) | tasks.add.s(4)
    assert chain.delay().get(timeout=SECONDS) == 10
    group = celery.group(tasks.add.s(number, number) for number in range(10))
    assert group.delay().get(timeout=SECONDS) == [2 * number for number in range(10)]


def test_topics_bring_tasks_to_their_queues(tasks: Any) -> None:
    for key in ("europe.delft", "asia.kyoto"):
        assert tasks.where.apply_async(routing_key=key).get(timeout=SECONDS) == key


def test_workers_answer_what_they_are_asked(app: celery.Celery, tasks: Any, worker: Worker, tmp_path: Path) -> None:
    result = tasks.wait_for.delay(str(tmp_path / "active"))
    until((tmp_path / "active").exists)
    inspect = app.control.inspect([worker.name], timeout=SECONDS, limit=1)
    assert inspect.ping() == {worker.name: {"ok": "pong"}}
    assert [task["id"] for task in inspect.active()[worker.name]] == [result.id]
    stats = inspect.stats()[worker.name]
    assert (stats["broker"]["transport"], stats["pool"]["max-concurrency"]) == ("amqp", 2)
    assert {queue["name"] for queue in inspect.active_queues()[worker.name]} == {"tasks", "tasks.europe", "tasks.asia"}
    (tmp_path / "active").unlink()
    assert result.get(timeout=SECONDS) == "active"


def test_broadcasts_reach_workers(app: celery.Celery, worker: Worker) -> None:
    everyone = {"reply": True, "timeout": SECONDS, "limit": 1}
    assert app.control.ping(timeout=SECONDS, limit=1) == [{worker.name: {"ok": "pong"}}]
    (answer,) = app.control.rate_limit("celery_tasks.now", "1000/s", **everyone)
    assert answer[worker.name] == {"ok": "new rate limit set successfully"}
    (answer,) = app.control.add_consumer("tasks.more", **everyone)
    assert answer[worker.name] == {"ok": "add consumer tasks.more"}
    (answer,) = app.control.cancel_consumer("tasks.more", **everyone)
    assert answer[worker.name] == {"ok": "no longer consuming from tasks.more"}


def test_a_revoked_task_does_not_run(app: celery.Celery, tasks: Any, worker: Worker) -> None:
    result = tasks.now.apply_async(countdown=3)
    inspect = app.control.inspect([worker.name], timeout=SECONDS, limit=1)
    until(lambda: any(task["request"]["id"] == result.id for task in inspect.scheduled()[worker.name]))
    app.control.revoke(result.id, reply=True, timeout=SECONDS, limit=1)
    with pytest.raises(TaskRevokedError):
        result.get(timeout=SECONDS)


def test_events_tell_a_tasks_life(app: celery.Celery, tasks: Any) -> None:
    """Who sends a task tells of it after that, and on another connection than its worker."""
    happened: list[tuple[str, str]] = []
    handlers = {"*": lambda event: happened.append((event.get("uuid", ""), event["type"]))}
    with app.connection_for_read() as connection:
        receiver = app.events.Receiver(connection, handlers)
        with receiver.consumer_context() as (receiving, _, _):
            result = tasks.add.delay(1, 1)
            last = {(result.id, "task-sent"), (result.id, "task-succeeded")}
            deadline = time.monotonic() + SECONDS
            while not last <= {*happened} and time.monotonic() < deadline:
                receiving.drain_events(timeout=SECONDS)
    life = [kind for task, kind in happened if task == result.id]
    assert life.count("task-sent") == 1
    assert [kind for kind in life if kind != "task-sent"] == ["task-received", "task-started", "task-succeeded"]
    assert result.get(timeout=SECONDS) == 2


def prefetch(native: shardmq.Connection, queue: str) -> int:
    """Of the worker that consumes from a queue, as the broker knows it; -1 while a gateway is too busy to say."""
    rows = [row for row in native.topology("consumers") if row["queue"] == queue]
    limits = {(row["connection"], row["number"]): row["global_prefetch"] for row in native.topology("channels")}
    return int(limits.get((rows[0]["connection"], rows[0]["channel"]), -1)) if len(rows) == 1 else -1


def test_the_prefetch_follows_what_waits_for_its_time(
    app: celery.Celery, tasks: Any, native: shardmq.Connection, worker: Worker
) -> None:
    inspect = app.control.inspect([worker.name], timeout=SECONDS, limit=1)
    until(lambda: prefetch(native, "tasks") == 4)
    results = [tasks.now.apply_async(countdown=4) for _ in range(10)]
    until(lambda: len(inspect.scheduled()[worker.name]) == 10)
    until(lambda: prefetch(native, "tasks") >= 10)
    assert tasks.add.delay(1, 2).get(timeout=SECONDS) == 3
    app.control.revoke([result.id for result in results], reply=True, timeout=SECONDS, limit=1)
    until(lambda: tasks.add.delay(1, 2).get(timeout=SECONDS) == 3 and prefetch(native, "tasks") == 4)


def test_the_prefetch_follows_the_pools_size(
    app: celery.Celery, native: shardmq.Connection, start_worker: StartWorker
) -> None:
    worker = start_worker("growing", "--pool", "prefork", "--concurrency", "1", "-Q", "tasks.growing")
    asked = {"destination": [worker.name], "reply": True, "timeout": SECONDS, "limit": 1}
    assert prefetch(native, "tasks.growing") == 2
    assert app.control.pool_grow(1, **asked) == [{worker.name: {"ok": "pool will grow"}}]
    until(lambda: prefetch(native, "tasks.growing") == 4)
    assert app.control.pool_shrink(1, **asked) == [{worker.name: {"ok": "pool will shrink"}}]
    until(lambda: prefetch(native, "tasks.growing") == 2)
    assert worker.stop() == 0


def unacked(native: shardmq.Connection, queues: Sequence[str]) -> int:
    """How many messages of these queues are with workers, or on their way."""
    return sum([table["unacked"] for table in native.status()["queues"] if table["name"] in queues])


def test_a_worker_reserves_as_many_tasks_as_it_says_of_all_its_queues_together(
    tasks: Any, start_worker: StartWorker, native: shardmq.Connection, tmp_path: Path
) -> None:
    queues = ("tasks.left", "tasks.right")
    start_alone(start_worker, "busy", ",".join(queues), "threads")
    assert prefetch(native, queues[0]) == prefetch(native, queues[1]) == 1
    files = [tmp_path / f"{queue}-{number}" for queue in queues for number in range(2)]
    results = [tasks.wait_for.apply_async((str(file), 3 * SECONDS), queue=file.name[:-2]) for file in files]

    def running() -> list[Path]:
        return [file for file in files if file.exists()]

    until(running)
    until(lambda: unacked(native, queues) == 1, "more than the one that runs is reserved")
    assert len(running()) == 1
    start_alone(start_worker, "idle", ",".join(queues), "threads")
    until(lambda: len(running()) == 2, "what a busy worker has no room for does not come to another one")
    until(lambda: unacked(native, queues) == 2, "more than the two that run are reserved")
    for _ in files:
        until(running)[0].unlink()
    assert [result.get(timeout=SECONDS) for result in results] == [file.name for file in files]


def test_a_task_whose_worker_was_killed_runs_again(tasks: Any, start_worker: StartWorker, tmp_path: Path) -> None:
    worker = start_alone(start_worker, "late", "tasks.late")
    result = tasks.die_once.apply_async((str(tmp_path / "begun"),), queue="tasks.late")
    until((tmp_path / "begun").exists)
    assert worker.stop(signal.SIGKILL) == -signal.SIGKILL
    start_alone(start_worker, "later", "tasks.late")
    assert result.get(timeout=SECONDS) is True


def test_a_warm_shutdown_ends_what_runs_and_leaves_the_rest(
    tasks: Any, start_worker: StartWorker, native: shardmq.Connection, tmp_path: Path
) -> None:
    worker = start_alone(start_worker, "urgent", "tasks.urgent")
    running = tasks.wait_for.apply_async((str(tmp_path / "running"),), queue="tasks.urgent")
    until((tmp_path / "running").exists)
    low = [tasks.now.apply_async(queue="tasks.urgent", priority=1) for _ in range(3)]
    high = [tasks.now.apply_async(queue="tasks.urgent", priority=9) for _ in range(3)]
    worker.process.send_signal(signal.SIGTERM)
    until(lambda: "Warm shutdown" in worker.said)
    (tmp_path / "running").unlink()
    assert worker.process.wait(SECONDS) == 0
    assert running.get(timeout=SECONDS) == "running"
    with native.channel() as channel:
        # It may have begun with the next one before it looked at the signal.
        until(lambda: channel.queue_declare("tasks.urgent", passive=True).messages >= 5, "some were not given back")
    start_alone(start_worker, "urgent-2", "tasks.urgent")
    first, then = ([result.get(timeout=SECONDS) for result in results] for results in (high, low))
    assert max(first) < min(then), "what is urgent runs first"


def test_quorum_queues_work_and_delay_natively(start_worker: StartWorker, url: str) -> None:
    queue = {"TASKS_QUORUM": "yes"}
    worker = start_worker("quorum", "--pool", "solo", "--without-gossip", "--without-mingle", **queue)
    program = (
        "import time, celery_tasks as tasks\n"
        "assert tasks.add.delay(1, 2).get(timeout=60) == 3\n"
        "begun = time.time()\n"
        "assert tasks.now.apply_async(countdown=2).get(timeout=60) >= begun + 1\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(PROGRAMS), "TASKS_URL": url, **queue},
        capture_output=True,
        text=True,
        timeout=3 * SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert worker.stop() == 0


def test_a_worker_goes_on_when_the_gateway_has_died(broker: Broker, tasks: Any, worker: Worker, tmp_path: Path) -> None:
    assert "Connection to broker lost" not in worker.said, "heartbeats went missing before"
    broker.kill_and_wait("gateway-0")
    tasks.wait_for.apply_async((str(tmp_path / "alive"), 0), retry=True)
    until((tmp_path / "alive").exists)
