"""A queue whose policies change while all that can happen to messages happens, through a real shard, with restarts.

The limits are wide, so that nothing is lost to them: all that is not acknowledged and has not died is there.
"""

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule
from msgspec.structs import replace

from shardmq.bus.messages.dead_letters import DeadLetter, DeadLetterAccepted, DeadLetterRefused
from shardmq.bus.messages.shard import Nack
from shardmq.message.record import unpack
from tests.shards.clocked import LONG_MS
from tests.shards.handlers.test_reservations_model import (
    READY,
    RETURNED,
    UNACKED,
    Message,
    ReservationMachine,
    there_are,
)

DYING = "dying"

policies = st.fixed_dictionaries(
    {},
    optional={
        "x-message-ttl": st.just(10**14),
        "x-max-length": st.just(100_000),
        "x-max-length-bytes": st.just(1 << 20),
        "x-overflow": st.sampled_from(["drop-head", "reject-publish", "reject-publish-dlx"]),
        "x-delivery-limit": st.just(1000),
        "x-dead-letter-exchange": st.just("dlx"),
        "x-expires": st.just(10**14),
    },
)


class PolicyMachine(ReservationMachine):
    """What may happen to a queue, with policies that come and go."""

    def __init__(self) -> None:
        super().__init__()
        self.policy: dict[str, Any] = {}
        self.has_exchange = False
        self.due_ms: dict[Message, int] = {}

    def tell_policy(self) -> None:
        declared = self.shard.loop._state.queues[1].queue.declared
        self.shard.assign(replace(declared, policy=self.policy))
        dies = "x-dead-letter-exchange" in self.policy
        self.has_exchange = dies or (self.has_exchange and bool(self.those(DYING)))

    def forget_old(self) -> None:
        super().forget_old()
        for message in self.those(RETURNED):
            if self.due_ms.get(message, 1 << 62) <= self.now_ms:
                message.state = READY
                del self.due_ms[message]

    @rule(policy=policies)
    def change_policy(self, policy: dict[str, Any]) -> None:
        self.policy = policy
        self.tell_policy()

    @there_are(UNACKED)
    @rule(data=st.data(), elapsed_ms=st.sampled_from([0, 11_000]), delay_ms=st.sampled_from([10_000, LONG_MS]))
    def delay(self, data: st.DataObject, elapsed_ms: int, delay_ms: int) -> None:
        """What is returned finds others due in its very pass."""
        some = data.draw(st.lists(st.sampled_from(self.those(UNACKED)), min_size=1, unique=True))
        self.shard.let_pass(elapsed_ms)
        self.shard.tell(Nack(9, [(message.number, message.number + 1) for message in some], True, delay_ms))
        self.now_ms += elapsed_ms
        self.forget_old()
        for message in some:
            message.state = RETURNED
            self.due_ms[message] = self.now_ms + delay_ms

    @there_are(UNACKED)
    @rule(data=st.data())
    def reject(self, data: st.DataObject) -> None:
        some = data.draw(st.lists(st.sampled_from(self.those(UNACKED)), min_size=1, unique=True))
        self.shard.tell(Nack(9, [(message.number, message.number + 1) for message in some], False))
        for message in some:
            message.state = DYING
        if not self.has_exchange:
            self.messages = [message for message in self.messages if message not in some]

    @there_are(DYING)
    @rule(data=st.data(), arrives=st.booleans())
    def answer_letters(self, data: st.DataObject, arrives: bool) -> None:
        letters = [letter for letter in self.shard.inbox if isinstance(letter, DeadLetter)]
        for letter in letters[: data.draw(st.integers(1, 5))]:
            self.shard.inbox.remove(letter)
            ranges = [(letter.first, letter.first + letter.batch.count)]
            self.shard.tell((DeadLetterAccepted if arrives else DeadLetterRefused)(1, ranges))
            if arrives:
                bodies = [record.body for record in unpack(letter.batch.records, letter.batch.count)]
                gone = [message for message in self.those(DYING) if message.body in bodies]
                assert len(gone) == len(bodies)
                self.messages = [message for message in self.messages if message not in gone]

    @rule(dirty=st.booleans(), policy=st.none() | policies)
    def restart(self, dirty: bool, policy: dict[str, Any] | None) -> None:
        """The coordinator may say something else afterwards: policies changed while the shard was away."""
        self.end_and_start(dirty)
        for message in self.those(DYING):
            message.state, message.was_out = READY, True
        self.has_exchange = False
        self.policy = self.policy if policy is None else policy
        self.tell_policy()

    @invariant()
    def dead_letters_agree(self) -> None:
        if hasattr(self, "shard"):
            assert self.shard.table()["dying"] == len(self.those(DYING))


TestPoliciesAgreeWithAList = PolicyMachine.TestCase
TestPoliciesAgreeWithAList.settings = settings(
    max_examples=15, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
