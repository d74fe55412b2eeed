"""Members that come and go faster than they could work: nobody is left over, and who stays gets everything."""

import threading

import pytest

import shardmq
from shardmq.cmd.run.broker import Broker

from .traffic import numbers, publish_all, until

PARTITIONS, EACH = 4, 25
MEMBERS = 100
AT_ONCE = 3


@pytest.mark.parametrize("is_shared", [False, True])
def test_who_stays_gets_all_that_others_left(
    broker: Broker, connection: shardmq.Connection, channel: shardmq.Channel, is_shared: bool
) -> None:
    channel.topic_declare("churned", PARTITIONS)
    for partition in range(PARTITIONS):
        publish_all(channel, f"churned-{partition}", numbers(partition * EACH, (partition + 1) * EACH))
    pids = dict(broker.pids)

    def come_and_go() -> None:
        with connection.channel() as own:
            for number in range(MEMBERS):
                member = own.group_consumer("churned", "g", start=(number % 2 and EACH) or 0, shared=is_shared)
                if number % 3 == 0:
                    member.poll(0.0)  # and acknowledges nothing
                member.close()
            own.group_consumer("churned", "g", start="earliest", shared=is_shared)  # goes with its channel

    restless = [threading.Thread(target=come_and_go) for _ in range(AT_ONCE)]
    channel.group_commit("churned", "g", dict.fromkeys(range(PARTITIONS), 0))
    for thread in restless:
        thread.start()
    for thread in restless:
        thread.join()
    found: set[bytes] = set()
    with channel.group_consumer("churned", "g", shared=is_shared) as consumer:
        until(lambda: (found.update(m.body for m in consumer.poll(0.05)), len(found) == PARTITIONS * EACH)[1], "all")
    rows = until(lambda: unheld(channel), "nobody holds anything")
    assert [row["offset"] for row in rows] == [EACH] * PARTITIONS
    assert broker.pids == pids
    channel.group_delete("churned", "g")
    channel.topic_delete("churned")


def unheld(channel: shardmq.Channel) -> list[dict[str, object]]:
    rows = channel.group_offsets("churned", "g")
    return [] if any(row["consumers"] or row["unacked"] for row in rows) else rows
