"""The threads that run the program's functions."""

import threading
from functools import partial

from shardmq.client.sync.workers import TURN_JOBS, SerialExecutor, WorkerPool


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
