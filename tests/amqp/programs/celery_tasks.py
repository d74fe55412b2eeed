"""The tasks of a Celery application, and its queues: the worker runs them, the tests ask for them.

The environment says where the broker is (TASKS_URL), and whether its own queue is a quorum queue (TASKS_QUORUM).
"""

import os
import time
from pathlib import Path
from typing import Any

from celery import Celery
from kombu import Exchange, Queue

topics = Exchange("tasks.topics", "topic", durable=True)

app = Celery("celery_tasks", broker=os.environ["TASKS_URL"], backend="rpc://")
app.conf.update(
    broker_connection_retry_on_startup=True,
    broker_heartbeat=5,
    control_queue_expires=60.0,
    event_queue_expires=60.0,
    result_expires=600,
    task_create_missing_queues=True,
    task_default_queue="tasks.quorum" if "TASKS_QUORUM" in os.environ else "tasks",
    task_default_queue_type="quorum" if "TASKS_QUORUM" in os.environ else "classic",
    task_send_sent_event=True,
    worker_hijack_root_logger=False,
    worker_prefetch_multiplier=2,
)
if "TASKS_QUORUM" not in os.environ:
    app.conf.update(
        task_queues=[
            Queue("tasks"),
            Queue("tasks.late"),
            Queue("tasks.urgent", queue_arguments={"x-max-priority": 10}),
            Queue("tasks.europe", topics, routing_key="europe.#"),
            Queue("tasks.asia", topics, routing_key="asia.#"),
        ],
        task_routes={"celery_tasks.where": {"exchange": "tasks.topics", "exchange_type": "topic"}},
    )


@app.task
def add(x: int, y: int) -> int:
    return x + y


@app.task
def fail() -> None:
    raise ValueError("of course")


@app.task(bind=True, max_retries=3)
def try_again(self: Any, until: int) -> int:
    """How often it was tried again: `until` times."""
    if self.request.retries < until:
        raise self.retry(countdown=0.2)
    return int(self.request.retries)


@app.task
def now() -> float:
    return time.time()


@app.task(acks_late=True)
def wait_for(path: str, seconds_max: float = 60.0) -> str:
    """Say that it has begun, by a file; end when the file is gone."""
    file = Path(path)
    file.touch()
    end = time.monotonic() + seconds_max
    while file.exists() and time.monotonic() < end:
        time.sleep(0.05)
    return file.name


@app.task(bind=True, acks_late=True, reject_on_worker_lost=True)
def die_once(self: Any, path: str) -> bool:
    """The first time it says that it has begun, and never ends; returns whether its message came again."""
    file = Path(path)
    if not file.exists():
        file.touch()
        time.sleep(600)
    return bool(self.request.delivery_info["redelivered"])


@app.task(bind=True)
def where(self: Any) -> str:
    return str(self.request.delivery_info["routing_key"])
