"""Rules that compare looks: slow disks and publishes that are many more than usual."""

from typing import Any

from shardmq.management.findings.past import USUAL_SECONDS, Past
from shardmq.management.findings.rules import broker, flow
from shardmq.management.findings.sight import Sight


def shard(count: int, seconds: float) -> dict[str, Any]:
    return {"process": "shard-0", "measures": {"flush_seconds": {"counts": [0, count], "sum": seconds}}}


def queue(rate: float) -> dict[str, Any]:
    rates = {"publish": rate, "ready": rate}
    return {"vhost": "/", "name": "orders", "ready": 5, "arguments": {}, "counts": {"publish": 1}, "rates": rates}


def sight(queues: list[dict[str, Any]], flushes: Any, usual: Any) -> Sight:
    return Sight({}, queues, set(), {}, {}, [], [], [], [], flushes, usual, {})


def test_a_disk_is_slow_where_the_flushes_since_the_last_look_took_long() -> None:
    past = Past()
    assert past.flushes([shard(100, 1.0)]) == {}
    since = past.flushes([shard(110, 6.0)])
    assert since == {"shard-0": (10, 5.0)}
    (finding,) = broker.disks_slow(sight([], since, {}))
    assert finding.numbers == {"flushes": 10, "mean_seconds": 0.5}
    assert list(broker.disks_slow(sight([], past.flushes([shard(1110, 7.0)]), {}))) == []
    assert past.flushes([shard(1, 7.0)]) == {}  # it has started anew


def test_a_spike_is_held_against_what_was_usual_for_ten_minutes() -> None:
    past = Past()
    for at in range(0, int(USUAL_SECONDS), 60):
        assert past.usual([queue(50.0)], 1e6 + at) == {}
    usual = past.usual([queue(50.0)], 1e6 + USUAL_SECONDS)
    assert list(flow.spikes(sight([queue(140.0)], {}, usual))) == []
    (finding,) = flow.spikes(sight([queue(160.0)], {}, usual))
    assert finding.numbers == {"publish_rate": 160.0, "usual_rate": 50.0, "ready": 5}
    assert past.usual([], 1e6 + 700) == past.usual([queue(160.0)], 1e6 + 760) == {}  # nobody saw it meanwhile
