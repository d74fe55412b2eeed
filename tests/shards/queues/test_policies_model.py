"""Queues whose policies change between all steps, against a plain list, with restarts."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule
from msgspec.structs import replace

from shardmq.shards.queues.plain_queue import PlainQueue
from shardmq.shards.state.hosted_queue import HostedQueue
from tests.shards.queues.configured_queue_model import terms
from tests.shards.queues.test_configured_queue_model import ConfiguredQueueMachine

OF_POLICIES = (
    "x-message-ttl",
    "x-max-length",
    "x-max-length-bytes",
    "x-overflow",
    "x-delivery-limit",
    "x-dead-letter-exchange",
)

policies = terms.map(lambda found: {name: value for name, value in found.items() if name in OF_POLICIES})


class PolicyMachine(ConfiguredQueueMachine):
    """A queue that gets and loses arguments while it runs."""

    @initialize(arguments=st.one_of(st.just({}), st.just({}), terms), memory=st.sampled_from([2000, 1 << 20]))
    def start(self, arguments: dict[str, Any], memory: int) -> None:
        self.begin(arguments, memory)

    def open(self, delayed: list[tuple[int, int]]) -> None:
        super().open(delayed)
        self.take_terms(self.declared.effective)
        self.hosted = HostedQueue(self.queue, self.clock.time_ms, {})

    @rule(policy=policies, goes_on=st.booleans())
    def change_policy(self, policy: dict[str, Any], goes_on: bool) -> None:
        self.queue.catch_up()
        for message in self.messages:
            message.is_new = False
        self.expire()
        self.trim()
        was_plain = isinstance(self.queue, PlainQueue)
        under_way = self.has_exchange and bool(self.deaths)
        self.declared = replace(self.declared, policy=policy)
        self.hosted.configure(self.declared, self.buffer, self.clock)
        self.queue = self.hosted.queue
        self.buffer.declare(self.declared)
        self.take_terms(self.declared.effective)
        self.has_exchange = self.has_exchange or under_way
        if was_plain and not isinstance(self.queue, PlainQueue):
            if self.limit is not None:
                self.die([message for message in self.those("ready") if message.count > self.limit], "delivery_limit")
            self.trim()
        if not goes_on:
            self.commit()


TestQueuesWithPoliciesAgreeWithAList = PolicyMachine.TestCase
TestQueuesWithPoliciesAgreeWithAList.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


class PolicyMachineInMemory(PolicyMachine):
    in_memory = True


TestQueuesWithPoliciesInMemoryAgreeWithAList = PolicyMachineInMemory.TestCase
TestQueuesWithPoliciesInMemoryAgreeWithAList.settings = TestQueuesWithPoliciesAgreeWithAList.settings
