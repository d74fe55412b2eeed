"""What members of a group hear when others come and go: only partitions that must move, do."""

import select
import signal
from collections.abc import Callable, Iterator

import pytest

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.protocol.native.operations.basic import BasicConsume, BasicDeliver
from shardmq.protocol.native.operations.groups import GroupAssigned, GroupReleased, GroupRevoked
from tests.conftest import StartBroker
from tests.gateway.rawclient import RawClient

from .traffic import publish_all, until

PARTITIONS = 300
MEMBERS = 30


class Member:
    """A member on a connection of its own, which lets go at once of what is revoked."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self.client = RawClient(broker).open()
        self.has: set[int] = set()
        self.gained = self.revoked = 0
        self.client.send(BasicConsume(9, 1, topic, "c", arguments={"x-group": "moves"}))

    def work(self) -> None:
        while self.client.inbox or select.select([self.client.socket], [], [], 0)[0]:
            match self.client.receive():
                case GroupAssigned(partitions=partitions):
                    self.has |= {number for number, _ in partitions}
                    self.gained += len(partitions)
                case GroupRevoked(partitions=numbers):
                    self.has -= set(numbers)
                    self.revoked += len(numbers)
                    self.client.send(GroupReleased(1, "c", numbers))


def come_to_rest(members: list[Member]) -> None:
    """Have members take in what they hear until every partition has one of them, and their shares are even."""

    def rests() -> bool:
        for member in members:
            member.work()
        shares = [len(member.has) for member in members]
        return sum(shares) == PARTITIONS and max(shares) - min(shares) <= 1

    until(rests, "every partition has a member")
    assert set().union(*(member.has for member in members)) == set(range(PARTITIONS))
    for member in members:
        member.gained = member.revoked = 0


@pytest.fixture
def members(broker: Broker) -> Iterator[Callable[[], Member]]:
    with shardmq.connect(broker.url) as connection:
        connection.channel().topic_declare("moves", PARTITIONS)
    started: list[Member] = []

    def join() -> Member:
        started.append(Member(broker, "moves"))
        return started[-1]

    yield join
    for member in started:
        member.client.socket.close()
    with shardmq.connect(broker.url) as connection:
        connection.channel().topic_delete("moves")


def test_one_who_joins_takes_its_share_and_one_whose_connection_breaks_leaves_it(
    members: Callable[[], Member],
) -> None:
    there = [members() for _ in range(MEMBERS)]
    come_to_rest(there)
    share = PARTITIONS // (MEMBERS + 1)
    late = members()
    until(lambda: [member.work() for member in (*there, late)] and len(late.has) >= share, "the late one has its share")
    assert sum(member.revoked for member in there) == late.gained == share
    assert sum(member.gained for member in there) == 0
    come_to_rest([*there, late])
    gone = there.pop()
    lost = set(gone.has)
    gone.client.socket.close()
    before = {id(member): set(member.has) for member in (*there, late)}
    until(lambda: [member.work() for member in (*there, late)] and _have_all([*there, late]), "others have what it had")
    assert {number for member in (*there, late) for number in member.has - before[id(member)]} == lost
    assert sum(member.revoked for member in (*there, late)) == 0


def _have_all(members: list[Member]) -> bool:
    return sum(len(member.has) for member in members) == PARTITIONS


def test_a_member_hears_of_a_partition_whose_shard_died_before_it_answered(start_broker: StartBroker) -> None:
    broker = start_broker(shards=1)
    heard: list[list[int]] = []
    with shardmq.connect(broker.url) as connection, connection.channel() as channel:
        channel.topic_declare("waits", 1)
        publish_all(channel, "waits-0", [b"kept"])
        broker.kill("shard-0", signal.SIGSTOP)
        with channel.group_consumer(
            "waits", "g", start="earliest", auto_commit=False, on_assigned=lambda some: heard.append(list(some))
        ) as consumer:
            channel.exchange_declare("behind", "fanout")  # the coordinator has assigned it, and the shard was asked
            channel.exchange_declare("it", "fanout")
            broker.kill_and_wait("shard-0")
            assert [message.body for message in consumer.poll(30)] == [b"kept"]
            assert consumer.offsets == {0: 1}
            assert heard == [[(0, 0)]]
            consumer.commit()
        assert channel.group_offsets("waits", "g")[0]["offset"] == 1


def test_what_waited_for_room_comes_when_a_partition_has_left_that_took_all_of_it(broker: Broker) -> None:
    with shardmq.connect(broker.url) as connection, connection.channel() as channel:
        channel.topic_declare("room", 2)
        first, second = RawClient(broker).open(), RawClient(broker).open()
        joins = BasicConsume(9, 1, "room", "c", prefetch=10, arguments={"x-group": "g", "x-stream-offset": "first"})

        def until_delivered(partition: int) -> None:
            publish_all(channel, f"room-{partition}", [b"%d" % partition] * 10)
            until(lambda: channel.group_offsets("room", "g")[partition]["unacked"] == 10, "its shard has sent them")

        def receive(kind: type) -> object:
            while not isinstance(heard := first.receive(), kind):
                pass
            return heard

        first.send(joins)
        until(lambda: [row["consumers"] for row in channel.group_offsets("room", "g")] == [1, 1], "it has both")
        until_delivered(1)
        until_delivered(0)  # and they wait in the gateway
        delivered = receive(BasicDeliver)
        assert isinstance(delivered, BasicDeliver)
        assert (delivered.partition, delivered.count) == (1, 10)
        second.send(joins)
        revoked = receive(GroupRevoked)
        assert isinstance(revoked, GroupRevoked)
        assert revoked.partitions == [1]
        first.send(GroupReleased(1, "c", [1]))
        delivered = receive(BasicDeliver)
        assert isinstance(delivered, BasicDeliver)
        assert (delivered.partition, delivered.count) == (0, 10)
        first.socket.close()
        second.socket.close()
        channel.topic_delete("room")
