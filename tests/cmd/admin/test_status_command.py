"""`shardmq status` of a running broker."""

from collections.abc import Callable
from typing import Any

from shardmq.cmd.admin.rates import with_rates
from shardmq.cmd.admin.status import logins
from shardmq.cmd.run.broker import Broker

Printed = Callable[..., bytes]
Parsed = Callable[..., Any]


def test_status_shows_every_process_and_queue(at: Broker, printed: Printed, parsed: Parsed) -> None:
    printed("queue", "declare", "seen")
    printed("publish", "seen", "abc", "--count", "7")
    state = parsed("status", "--interval", "0.2")
    processes = {row["process"]: row for row in state["processes"]}
    assert {name: row["pid"] for name, row in processes.items()} == at.pids
    assert all(row["rss_bytes"] < 100 << 20 for row in processes.values())
    assert processes["shard-0"]["store"]["file_bytes"] > 0
    queue = next(row for row in state["queues"] if row["name"] == "seen")
    assert (queue["ready"], queue["unacked"], queue["consumers"]) == (7, 0, 0)
    assert queue["publish_rate"] == 0
    shown = printed("status", "--interval", "0.1").decode()
    assert all(name in shown for name in (*at.pids, "seen"))


def test_status_of_a_user_without_monitoring_tells_of_what_is_theirs(at: Broker, printed: Printed) -> None:
    printed("user", "add", "clerk", "--password", "secret")
    printed("permission", "set", "clerk", "--vhost", "/", "", "", "")
    printed("queue", "declare", "of-all")
    own = f"shardmq://clerk:secret@127.0.0.1:{at.port}/"
    shown = printed("status", "--interval", "0.1", "--url", own).decode()
    assert "this user has 1 connection, 1 channel and 0 consumers" in shown
    assert "of-all" in shown
    assert not any(name in shown for name in at.pids)
    assert b'"processes":[]' in printed("status", "--interval", "0.1", "--url", own, "--json")


def test_status_tells_of_refused_logins_where_there_are_any() -> None:
    assert logins([{"logins_refused": 0, "logins_delayed": 0, "logins_waiting": 0}, {}]) == []
    rows = [{"logins_refused": 1000, "logins_delayed": 7, "logins_waiting": 1}] * 2
    assert logins(rows) == ["refused since the gateways began: 2,000 logins, 14 of them late; waiting now: 2"]


def test_rates_come_from_two_looks() -> None:
    def look(published: int, cpu: float, pid: int = 7) -> dict[str, Any]:
        queue = {"id": 1, "published": published, "delivered": 0, "acked": 0}
        return {"processes": [{"pid": pid, "cpu_seconds": cpu}], "queues": [queue]}

    state = with_rates(look(100, 1.0), look(300, 1.5), 2.0)
    assert state["queues"][0]["publish_rate"] == 100.0
    assert state["processes"][0]["cpu_percent"] == 25.0
    restarted = with_rates(look(100, 1.0), look(50, 0.1, pid=8), 1.0)
    assert restarted["queues"][0]["publish_rate"] == 50.0
    assert restarted["processes"][0]["cpu_percent"] is None
