"""Every example of docs/examples runs as a program of its own, against a real broker, and ends by itself."""

import os
import re
import subprocess
import sys
from pathlib import Path

import shardmq
from shardmq.cmd.run.broker import Broker

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "docs/examples"
TESTED = (
    "orders",
    "rpc",
    "asyncio_service",
    "celery_app",
    "topics",
    "ordered_group",
    "shared_group",
    "transform",
)
ELSEWHERE = ("spark_job", "spark_stream")
"""Run by tests/install/test_wheel.py and tests/spark/test_documents.py, where Spark is started anyway."""


def run(name: str, url: str, *options: str, is_named: bool = True) -> str:
    """Run an example to its end, its broker named in its command or in its environment; returns what it printed."""
    ran = subprocess.run(
        [sys.executable, *options, EXAMPLES / f"{name}.py", *([url] if is_named else [])],
        env={**os.environ, "SHARDMQ_URL": url},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def amqp(broker: Broker) -> str:
    return broker.url.replace("shardmq://", "amqp://", 1)


def queues(broker: Broker) -> set[str]:
    with shardmq.connect(broker.url) as connection:
        return {row["name"] for row in connection.topology("queues")}


def test_every_example_has_a_test() -> None:
    assert sorted(path.stem for path in EXAMPLES.glob("*.py")) == sorted(TESTED + ELSEWHERE)


def test_orders_are_shipped_retried_and_dead_lettered(broker: Broker) -> None:
    printed = run("orders", broker.url, "-W", "error")
    assert "published 20 orders, each once" in printed
    shipped = [int(number) for number in re.findall(r"shipped order (\d+)", printed)]
    assert sorted(shipped) == [number for number in range(1, 21) if number % 5]
    for number in (5, 10, 15, 20):
        assert re.findall(rf"order {number} failed .*, try (\d)", printed) == ["1", "2", "3", "4"]
        assert re.search(rf'dead letter from orders\.\w+, delivery_limit: {{"id": {number},', printed)
    assert not queues(broker)


def test_rpc_calls_are_answered(broker: Broker) -> None:
    for is_named in (True, False):
        printed = run("rpc", broker.url, "-W", "error", is_named=is_named)
        assert printed.splitlines() == ["fibonacci(1) = 1", "fibonacci(10) = 55", "fibonacci(50) = 12586269025"]
    assert not queues(broker)


def test_the_asyncio_service_sees_every_reading(broker: Broker) -> None:
    for _ in range(2):
        printed = run("asyncio_service", broker.url, "-W", "error")
        assert "published 200 readings" in printed
        assert len(re.findall(r"sensor \d: 40 readings, average", printed)) == 5
        assert "38 alarms were waiting" in printed
    assert not queues(broker)


def test_the_celery_app_runs_its_tasks(broker: Broker) -> None:
    printed = run("celery_app", amqp(broker))
    assert "one task: cat.jpg at 200 px" in printed
    assert "a chain: dog.jpg at 100 px" in printed
    assert "a group: ['cow.jpg at 100 px', 'cow.jpg at 200 px']" in printed


def test_topics_are_read_in_order_from_a_time_and_by_tag(broker: Broker) -> None:
    for is_named in (True, False):
        printed = run("topics", broker.url, "-W", "error", is_named=is_named)
        assert sorted(re.findall(r"sensor-\d(?= |,|$)", printed.partition(" readings")[0], re.M)) == [
            f"sensor-{number}" for number in range(10)
        ]
        assert "143 readings are hot" in printed
        (first,) = re.findall(r"offset 150 came at .* from offset (\d+) on", printed)
        assert int(first) <= 150
        assert re.search(r"sensor-\d went on with 10\d\d, at offset \d+", printed)
    assert not [name for name in queues(broker) if name.startswith("example-")]


def test_an_ordered_group_goes_on_where_a_member_failed(broker: Broker) -> None:
    printed = run("ordered_group", broker.url, "-W", "error")
    assert {int(number) for number in re.findall(r"bert got partitions \[(\d)\]", printed)} == {0, 1, 2, 3}
    assert re.search(r"bert stops at order \d+", printed)
    assert {int(number) for number in re.findall(r"anna got partitions \[(\d)\]", printed)} == {0, 1, 2, 3}
    assert "400 of 400 orders have an invoice" in printed
    assert len(re.findall(r"partition \d: offset \d+, 0 behind", printed)) == 4
    assert not [name for name in queues(broker) if name.startswith("example-")]


def test_a_shared_group_tries_again_and_gives_up(broker: Broker) -> None:
    printed = run("shared_group", broker.url, "-W", "error")
    for mail in range(60):
        tries = {0: ["1", "2", "3", "4"], 5: ["1"], 15: ["1"]}.get(mail % 20, [])
        assert re.findall(rf"mail {mail} failed .*, try (\d)", printed) == tries, mail
    assert "57 of 60 mails were sent" in printed
    assert len(re.findall(r"dead letter, delivery_limit: mail (?:0|20|40)$", printed, re.M)) == 3
    assert not [name for name in queues(broker) if name.startswith("example-")]


def test_what_is_made_of_a_topic_counts_once_though_the_program_fails(broker: Broker) -> None:
    printed = run("transform", broker.url, "-W", "error")
    assert [int(number) for number in re.findall(r"failed in transaction (\d): PowerCutError", printed)] == [2, 3]
    assert "each trade counts once" in printed
    assert not [name for name in queues(broker) if name.startswith("example-")]
