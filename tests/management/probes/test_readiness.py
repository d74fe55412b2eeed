"""/readyz over real processes: a broker without one of its shards is not ready, and says so without a login."""

import json
import os
import signal
import time
import urllib.request
from urllib.error import HTTPError

from shardmq.cmd.run.broker import Broker


def ready(broker: Broker) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(broker.management_url + "readyz", timeout=30) as answer:
            return answer.status, ""
    except HTTPError as refused:
        with refused:
            return refused.code, json.load(refused)["reason"]


def until(broker: Broker, status: int) -> str:
    end = time.monotonic() + 20
    while (found := ready(broker))[0] != status:
        assert time.monotonic() < end, found
    return found[1]


def test_a_broker_is_ready_while_all_its_shards_are_there(managed: Broker) -> None:
    assert ready(managed) == (200, "")
    os.kill(managed.pid, signal.SIGSTOP)  # so that nobody starts the shard again meanwhile
    try:
        os.kill(managed.pids["shard-1"], signal.SIGKILL)
        assert "it does not reach the coordinator and all shards" in until(managed, 503)
    finally:
        os.kill(managed.pid, signal.SIGCONT)
    until(managed, 200)
