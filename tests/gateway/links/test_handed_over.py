"""A shard that another host is about to lead: the gateway keeps what it did not take in for that host."""

from collections.abc import Callable

import pytest

from shardmq.bus.messages.shard import Publish
from shardmq.gateway.links.publishes import publish_window
from shardmq.message.record import pack, unpack
from shardmq.protocol.native.operations.basic import BasicConfirm, BasicPublish, BasicRefused
from shardmq.protocol.native.operations.topology import TopologyList
from tests.gateway.rawclient import RawClient
from tests.gateway.stage import Stage

StartStage = Callable[..., Stage]


def publish(client: RawClient, request: int, body: bytes, queue: str = "a") -> None:
    client.send(BasicPublish(request, 1, "", queue, 0, 1, pack(None, body)))


def bodies(stage: Stage) -> list[bytes]:
    """What the shard was told to store, in order."""
    found = [message for message in stage.shards[0].heard if isinstance(message, Publish)]
    return [record.body for each in found for record in unpack(each.batch.records, each.batch.count)]


def hand_over(stage: Stage) -> None:
    """The shard says that it takes no more."""
    stage.shards[0].listener.settle("another host leads")
    stage.until(lambda: not stage.state.links[0].is_open)
    stage.shards[0].heard.clear()


def hand_over_by_death(stage: Stage) -> None:
    """The shard's process has died, and another host is yet to be elected."""
    shard = stage.shards[0]
    shard.listener.is_early = lambda _hello: True
    shard.listener.end_all("for the test")
    stage.until(lambda: not stage.state.links[0].is_open)
    shard.heard.clear()


def lead(stage: Stage) -> None:
    """The shard is there again, on whichever host."""
    shard = stage.shards[0]
    shard.listener.is_early = lambda _hello: False
    shard.listener.resume("for the test")
    stage.until(lambda: stage.state.links[0].is_open)


def confirmed(client: RawClient) -> list[int]:
    said = client.receive()
    assert isinstance(said, BasicConfirm), said
    return [number for first, last in said.requests for number in range(first, last + 1)]


def test_what_was_not_taken_in_and_what_comes_meanwhile_is_posted_in_order(start_stage: StartStage) -> None:
    stage = start_stage([("a", 0, {}), ("b", 0, {})])
    with RawClient(stage).open() as client:
        publish(client, 2, b"taken")
        stage.expect(0, Publish)
        stage.shards[0].listener.is_settled = True  # what comes from here on is not taken in
        for number in range(3):
            publish(client, 3 + number, b"under way %d" % number)
            publish(client, 13 + number, b"of b %d" % number, "b")
            client.ask(TopologyList, "exchanges")
        stage.confirm(0, 1)
        assert confirmed(client) == [2]
        hand_over(stage)
        for number in range(3):
            publish(client, 23 + number, b"later %d" % number)
            client.ask(TopologyList, "exchanges")
        assert not bodies(stage)
        lead(stage)
        stage.until(lambda: len(bodies(stage)) == 9)
        of_b = [body for body in bodies(stage) if b"of b" in body]
        assert of_b == [b"of b %d" % number for number in range(3)]
        expected = [*(b"under way %d" % number for number in range(3)), *(b"later %d" % number for number in range(3))]
        assert [body for body in bodies(stage) if b"of b" not in body] == expected
        stage.confirm(0, sum(isinstance(message, Publish) for message in stage.shards[0].heard))
        heard: list[int] = []
        while len(heard) < 9:
            heard += confirmed(client)
        assert sorted(heard) == [3, 4, 5, 13, 14, 15, 23, 24, 25]


def test_a_shard_that_goes_away_after_it_was_handed_over_leaves_its_publishes_uncertain(
    start_stage: StartStage,
) -> None:
    stage = start_stage([("a", 0, {})])
    with RawClient(stage).open() as client:
        hand_over(stage)
        publish(client, 2, b"kept")
        client.ask(TopologyList, "exchanges")
        lead(stage)
        stage.until(lambda: bodies(stage) == [b"kept"])
        stage.shards[0].listener.end_all("for the test")
        said = client.receive()
        assert isinstance(said, BasicRefused)
        assert "stored or not is not certain; publish again" in said.text


def test_nobody_waits_for_long_for_a_shard_that_no_host_leads(
    start_stage: StartStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publish_window, "HANDOVER_SECONDS", 0.3)
    stage = start_stage([("a", 0, {})])
    with RawClient(stage).open() as client:
        hand_over(stage)
        publish(client, 2, b"kept")
        said = client.receive()
        assert isinstance(said, BasicRefused)
        assert "was to be led by another host, and was not after 0.3 s; publish again" in said.text
        publish(client, 3, b"refused at once")
        said = client.receive()
        assert isinstance(said, BasicRefused)
        assert said.text == "shard-0 is not there now; publish again"
        lead(stage)
        publish(client, 4, b"taken")
        stage.until(lambda: bodies(stage) == [b"taken"])


def test_where_hosts_are_elected_what_comes_while_none_leads_is_kept_and_what_was_under_way_refused(
    start_stage: StartStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = start_stage([("a", 0, {})])
    stage.state.links[0].confirms.has_heirs = True
    with RawClient(stage).open() as client:
        publish(client, 2, b"under way")
        stage.expect(0, Publish)
        hand_over_by_death(stage)
        said = client.receive()
        assert isinstance(said, BasicRefused)
        assert "stored or not is not certain; publish again" in said.text
        publish(client, 3, b"kept")
        client.ask(TopologyList, "exchanges")
        assert not bodies(stage)
        lead(stage)
        stage.until(lambda: bodies(stage) == [b"kept"])
        stage.confirm(0, 1)
        assert confirmed(client) == [3]
        monkeypatch.setattr(publish_window, "HANDOVER_SECONDS", 0.3)
        hand_over_by_death(stage)
        publish(client, 4, b"kept in vain")
        for _ in range(2):
            said = client.receive()
            assert isinstance(said, BasicRefused)
            publish(client, 5, b"refused at once")
        assert said.text == "shard-0 is not there now; publish again"
