"""A Celery application on shardmq: it needs the broker's address, and nothing else of shardmq.

    celery --workdir docs/examples -A celery_app worker       # a worker, as usual; BROKER_URL says which broker
    python docs/examples/celery_app.py [URL]                  # or all in one: a worker, some tasks, their results

It needs `pip install celery`.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from celery import Celery, group

if __name__ == "__main__" and len(sys.argv) > 1:
    os.environ["BROKER_URL"] = sys.argv[1]

app = Celery("celery_app", broker=os.environ.get("BROKER_URL", "amqp://guest:guest@127.0.0.1:5672//"), backend="rpc://")
app.conf.update(
    broker_connection_retry_on_startup=True,
    task_acks_late=True,  # a task that a worker dies of is run by another
    task_default_queue="celery-example",
)


@app.task
def resize(name: str, width: int) -> str:
    """Pretend to resize a picture."""
    return f"{name} at {width} px"


@app.task(bind=True, max_retries=3)
def fetch(self: Any, name: str) -> str:
    """Pretend to fetch a picture from a server that answers the second time."""
    if self.request.retries == 0:
        raise self.retry(countdown=0.1)
    return name


def main() -> None:
    """Start a worker, have it run some tasks, and stop it."""
    command = ["celery", "-A", "celery_app", "worker", "--pool", "threads", "--concurrency", "2", "--loglevel", "ERROR"]
    with subprocess.Popen([sys.executable, "-m", *command], cwd=Path(__file__).parent) as worker:
        try:
            print("one task:", resize.delay("cat.jpg", 200).get(timeout=60))
            print("a chain:", (fetch.s("dog.jpg") | resize.s(100)).delay().get(timeout=60))
            print("a group:", group(resize.s("cow.jpg", width) for width in (100, 200)).delay().get(timeout=60))
        finally:
            worker.terminate()  # it finishes its tasks first


if __name__ == "__main__":
    main()
