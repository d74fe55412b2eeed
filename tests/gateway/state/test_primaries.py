"""Shards that are added on several hosts: a gateway calls them, and has a link to the shard of every queue."""

import asyncio

from shardmq.bus.curve import CurveKeys
from shardmq.bus.messages.coordinator import Changes
from shardmq.gateway.state.gateway import GatewayState
from shardmq.gateway.state.primaries import PrimaryFinder, find_broker
from shardmq.replication.etcd.background import BackgroundRegister
from shardmq.replication.etcd.url import parse
from shardmq.replication.etcd.values import BROKER, Broker
from shardmq.topology.changes import QueueAdded
from shardmq.topology.entities import Queue
from tests.hosts.members import Etcd

SECONDS = 10.0


def test_a_queue_on_a_shard_that_is_not_known_yet_has_a_link_and_etcd_tells_of_more(etcd: Etcd) -> None:
    async def body() -> None:
        url = f"{etcd.url}/growing"
        register = BackgroundRegister(parse(url), "test")
        register.change(BROKER, "", lambda _: Broker("b0b0", 2, 1))
        directory, shards = await find_broker(url, "a.gateway-0")
        state = GatewayState("a.gateway-0", "", ("",) * shards, CurveKeys(is_insecure=True))
        finder = PrimaryFinder(state, directory)
        try:
            assert len(state.links) == 2
            queue = Queue("/", "hello", 7, 3, True, {})
            added = QueueAdded(queue)
            finder.changed(Changes(1, [added], [], False))
            assert len(state.links) == 4
            assert not state.links[3].is_open
            route = state.routes.to([queue])
            assert [link for link, _ in route] == [state.links[3]]

            register.change(BROKER, "", lambda _: Broker("b0b0", 6, 1, shards_at_first=2))
            async with asyncio.timeout(SECONDS):
                while len(state.all_links) < 7:  # with the coordinator's
                    await asyncio.sleep(0.01)
            assert len(state.links) == 4, "the others are not there yet, and no queue is on them"
        finally:
            finder.close()
            state.close()
            register.close()

    asyncio.run(body())
