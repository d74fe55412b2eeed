"""The threads that run the program's functions."""

import asyncio
import threading
from functools import partial

from shardmq.client.api.metrics import MetricsCounter
from shardmq.client.sync.workers import TURN_JOBS, MetricsReporter, SerialExecutor, WorkerPool


def test_jobs_that_wait_when_the_pool_is_stopped_are_done_all_of_them() -> None:
    """`Connection.close` stops the pool of hooks: what came back until then is told."""
    pool = WorkerPool(1, "test")
    executor = SerialExecutor(pool)
    may_begin, is_over = threading.Event(), threading.Event()
    done: list[int] = []
    executor.do(lambda: may_begin.wait(10) and None)
    for number in range(3 * TURN_JOBS):
        executor.do(partial(done.append, number))
    executor.do(is_over.set)
    pool.stop()
    may_begin.set()
    assert is_over.wait(10), f"{len(done)} were done"
    assert done == list(range(3 * TURN_JOBS))


def test_a_thread_of_a_pool_does_its_next_job_whatever_the_one_before_has_raised() -> None:
    def fail() -> None:
        raise asyncio.CancelledError

    pool = WorkerPool(1, "test")
    done = threading.Event()
    pool.do(fail)
    pool.do(done.set)
    assert done.wait(10)
    pool.stop()


def test_metrics_are_reported_whatever_the_function_has_raised_before() -> None:
    told = threading.Semaphore(0)

    def count(_name: str, _more: int) -> None:
        told.release()
        raise SystemExit

    lock = threading.Lock()
    reporter = MetricsReporter("test", lock)
    meter = MetricsCounter(count, reporter.due)
    reporter.start(meter)
    for _ in range(2):
        with lock:
            meter.count("published", 1)
        assert told.acquire(timeout=10)
    reporter.stop(10)
