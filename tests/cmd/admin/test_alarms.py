"""What commands show of alarms: who publishes hears why it waits, and the state says what is short."""

import json
import subprocess
from collections.abc import Callable

from shardmq.cmd.run.broker import Broker
from shardmq.cmd.run.invocation import command, environment


def test_a_blocked_publish_says_why_it_waits_and_status_shows_it(start_broker: Callable[..., Broker]) -> None:
    broker = start_broker(shards=1, options=["--disk-free-limit", "1000TB"])
    around = environment(SHARDMQ_URL=broker.url)
    subprocess.run(command("queue", "declare", "full"), env=around, check=True, timeout=30, stdout=subprocess.DEVNULL)
    with subprocess.Popen(command("publish", "full", "x"), env=around, stderr=subprocess.PIPE) as waiting:
        assert waiting.stderr is not None
        assert b"takes no publishes now: low on disk" in waiting.stderr.readline()
        waiting.kill()
    seen = subprocess.run(
        command("status", "--interval", "0.1"), env=around, capture_output=True, check=True, timeout=30
    )
    assert b"publishers wait: disk alarm on shard-0" in seen.stdout
    seen = subprocess.run(
        command("status", "--interval", "0.1", "--json"), env=around, capture_output=True, check=True, timeout=30
    )
    alarms = {row["process"]: row.get("alarms") for row in json.loads(seen.stdout)["processes"]}
    assert alarms["gateway-0"] == []
    assert len(alarms["shard-0"]) == 1
