"""`shardmq status` on a terminal: what is busy comes first, and what does not fit is counted."""

from collections.abc import Callable

import shardmq
from shardmq.cmd.admin.status import PROCESS_COLUMNS, page
from shardmq.cmd.run.broker import Broker
from shardmq.cmd.run.invocation import command, environment
from tests.cmd.pseudo_terminal import Terminal

LINES = 24
QUEUES = 40


def test_watching_shows_the_busiest_queues_and_counts_the_others(broker: Broker) -> None:
    with shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        for number in range(QUEUES):
            channel.queue_declare(f"idle-{number}", durable=True)
        channel.queue_declare("zz-busy", durable=True)
        for _ in range(10):
            channel.basic_publish("", "zz-busy", b"x")
        terminal = Terminal(
            command("status", "--watch", "--interval", "5"), environment(SHARDMQ_URL=broker.url), lines=LINES
        )
        try:
            shown = terminal.read_until("less busy not shown")
        finally:
            terminal.close()
    lines = [line.strip() for line in shown.splitlines()]
    header = next(number for number, line in enumerate(lines) if line.startswith("queue "))
    assert lines[header + 2].startswith("zz-busy")
    listed = sum(line.startswith("idle-") for line in lines) + 1
    assert f"41 queues, {QUEUES + 1 - listed} less busy not shown" in shown
    assert len(lines) <= LINES
    assert all(any(name in line for line in lines) for name in broker.pids)


def state(processes: int, queues: int) -> dict[str, object]:
    rates = {"publish_rate": 0.0, "deliver_rate": 0.0, "ack_rate": 0.0}
    return {
        "processes": [
            {
                "process": f"shard-{number}",
                "role": "shard",
                "pid": number,
                "uptime_seconds": 1,
                "cpu_percent": float(number),
                "rss_bytes": 1000,
            }
            for number in range(processes)
        ],
        "queues": [
            {
                "name": f"q{number}",
                "vhost": "/",
                "ready": number,
                "unacked": 0,
                "consumers": 0,
                "bytes": 0,
                **rates,
            }
            for number in range(queues)
        ],
    }


def drawn(render: Callable[[], object], width: int) -> list[str]:
    from rich.console import Console

    console = Console(width=width)
    with console.capture() as capture:
        console.print(render())
    return capture.get().splitlines()


def test_a_page_is_never_higher_than_the_terminal() -> None:
    for processes, queues, height in ((6, 3, 24), (70, 1000, 24), (70, 1000, 60), (6, 1000, 17), (0, 1000, 24)):
        lines = drawn(lambda: page(state(processes, queues), 80, height)[0], 80)  # noqa: B023
        assert len(lines) <= height
        assert any(line.startswith(f"q{queues - 1} ") for line in lines)
        assert not processes or any(line.startswith(f"shard-{processes - 1} ") for line in lines)


def test_a_page_of_any_height_has_everything_in_the_brokers_order() -> None:
    lines = drawn(lambda: page(state(70, 100), 80)[0], 80)
    assert [line.split()[0] for line in lines if line.startswith("q") and line[1].isdigit()] == [
        f"q{number}" for number in range(100)
    ]
    assert not any("not shown" in line for line in lines)
    assert sum(line.startswith("shard-") for line in lines) == 70
    assert PROCESS_COLUMNS[0].name == "process"


def follower(host: str, state: str, **known: object) -> dict[str, object]:
    return {"host": host, "state": state, "records": None, "seconds": None, "joined_percent": None, **known}


def group(name: str, primary: str, in_sync: list[str], state: str, *followers: object) -> dict[str, object]:
    told = {"in_sync": in_sync, "replicas": ["a", "b"], "min_in_sync": 1, "followers": followers}
    return {"group": name, "term": 3, "primary": primary, "state": state, **told}


def test_of_several_hosts_it_shows_who_leads_and_what_is_not_in_sync() -> None:
    rows = [
        group("coordinator", "a", ["a", "b"], "whole", follower("b", "in sync", records=0, seconds=0.0)),
        group("shard-0", "b", ["a", "b"], "whole", follower("a", "in sync", records=1204, seconds=0.4)),
        group("shard-1", "a", ["a"], "alone; not in sync: b", follower("b", "joining", joined_percent=43)),
    ]
    host = {"state": "up", "leads": 2, "replicas": 3, "in_sync": 3}
    hosts = [{**host, "host": "a"}, {**host, "host": "b", "state": "draining"}]
    finding = {"rule": "replicas-alone", "title": "shard-1 is alone on a: the replica on b is joining, 43 %"}
    several = {**state(2, 1), "hosts": hosts, "groups": rows, "findings": [finding]}
    for number, row in enumerate(several["processes"]):  # type: ignore[arg-type]
        row.update(host="ab"[number], term=number + 3)
    lines = drawn(lambda: page(several, 80)[0], 80)
    assert max(map(len, lines)) <= 80
    [header] = [line.split() for line in lines if line.lstrip().startswith("process ")]
    assert header[:3] == ["process", "host", "term"]
    shown = [line.split() for line in lines if line.startswith("shard-")]
    assert [each[:3] for each in shown[:2]] == [["shard-0", "a", "3"], ["shard-1", "b", "4"]]
    assert ["shard-0", "b", "3", "a,", "b", "a", "1,204", "(0.4", "s)", "whole"] in shown
    assert ["shard-1", "a", "3", "a", "b", "joining", "43", "%", "alone;", "not", "in", "sync:", "b"] in shown
    assert ["b", "draining", "2", "3", "3"] in [line.split() for line in lines]
    assert "shard-1 is alone on a: the replica on b is joining, 43 %" in lines
    assert "host" not in " ".join(drawn(lambda: page(state(2, 1), 80)[0], 80))
