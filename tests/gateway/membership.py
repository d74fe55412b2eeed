"""A client in groups on a gateway, whose shards and coordinator the test plays."""

import select
from collections.abc import Callable
from typing import Any, TypeVar

from shardmq.bus.messages.base import Answer, Refusal
from shardmq.bus.messages.membership import GroupAssignment, GroupMember, Held, JoinGroup
from shardmq.bus.messages.shard import Ack, Consume, Counts, Delivered, Release
from shardmq.message.record import pack
from shardmq.message.record_batch import RecordBatch
from shardmq.protocol.native.operations.basic import BasicConsume
from shardmq.protocol.native.operations.connection import Ok
from shardmq.protocol.native.operations.fields import Operation
from shardmq.topology.changes import TopicPut
from shardmq.topology.entities import Topic
from tests.gateway.rawclient import RawClient
from tests.gateway.stage import Stage

StartStage = Callable[..., Stage]
Kind = TypeVar("Kind")
STREAM = {"x-queue-type": "stream"}
IN_GROUP = {"x-group": "billing", "x-stream-offset": "first"}


def stage_of(start_stage: StartStage, partitions: int = 2) -> Stage:
    """A gateway with the topic "orders": partition n is the queue n + 1, on shard 0."""
    stage = start_stage([(f"orders-{number}", 0, STREAM) for number in range(partitions)])
    stage.tell(TopicPut(Topic("/", "orders", tuple(range(1, partitions + 1)))))
    return stage


class Guest:
    """A native client in a group.

    Args:
        stage: its gateway and what is behind it.
        client: the client's socket.
    """

    def __init__(self, stage: Stage, client: RawClient) -> None:
        self.stage = stage
        self.client = client
        self.heard: list[Operation] = []

    def hear(self, kind: type[Kind]) -> Kind:
        """The next operation of a kind that the client hears; those of other kinds stay."""
        found: list[Kind] = []

        def is_there() -> bool:
            while self.client.inbox or select.select([self.client.socket], [], [], 0)[0]:
                said = self.client.receive()
                assert said is not None, "the gateway hung up"
                self.heard.append(said)
            found[:] = [said for said in self.heard if isinstance(said, kind)]
            return bool(found)

        self.stage.until(is_there)
        self.heard.remove(found[0])  # type: ignore[arg-type]
        return found[0]

    def news(self, kind: type[Kind]) -> Kind:
        """The next thing of a kind that the coordinator hears; those of other kinds stay."""
        news = self.stage.news
        self.stage.until(lambda: any(isinstance(said, kind) for said in news))
        found: Kind = next(said for said in news if isinstance(said, kind))
        news.remove(found)
        return found

    def join(self, tag: str = "c", prefetch: int = 0, **arguments: Any) -> GroupMember:
        """Consume as a member of the group."""
        told = {**IN_GROUP, **{name.replace("_", "-"): value for name, value in arguments.items()}}
        self.client.send(BasicConsume(1, 1, "orders", tag, False, prefetch, told))
        joined = self.news(JoinGroup)
        assert self.hear(Ok).result == {"consumer": tag}
        return joined.member

    def assign(self, member: str, *held: Held, offset: int = 0) -> list[Consume]:
        """Assign partitions to a member; its shard lets it consume them from an offset on."""
        self.stage.say_as_coordinator(GroupAssignment(member, list(held), []))
        asked = [self.stage.expect(0, Consume) for _ in held]
        for each in asked:
            self.stage.say(0, Answer(self.stage.request(each), offset))
        return asked

    def revoke(self, member: str, *queues: int) -> None:
        self.stage.say_as_coordinator(GroupAssignment(member, [], list(queues)))

    def answer(self, kind: type[Any], result: Any = None) -> Any:
        """The shard answers the next request of a kind."""
        asked = self.stage.expect(0, kind)
        said = Refusal(self.stage.request(asked), *result) if isinstance(result, tuple) else None
        self.stage.say(0, said or Answer(self.stage.request(asked), result))
        return asked

    def deliver(self, consumer: int, first: int, count: int) -> None:
        """A shard delivers messages."""
        self.stage.say(0, Delivered(consumer, first, False, run_of(count)))

    def let_go(self) -> list[Ack | Release]:
        """What the shard hears of acks and releases until it is asked to count, which is answered."""
        self.answer(Counts, [0, 0])
        heard = self.stage.shards[0].heard
        said = [message for message in heard if isinstance(message, Ack | Release)]
        heard[:] = [message for message in heard if not isinstance(message, Ack | Release)]
        return said


def run_of(count: int) -> RecordBatch:
    return RecordBatch("orders", "0", 0, 0, 1, 1, count, pack(None, b"x") * count)
