"""Stores of two formats copy nothing from one another; a replica hears of a later one before anything else."""

import re
from collections.abc import Iterator

import pytest

from shardmq.replication.core.messages import Beat, Message, Record
from shardmq.replication.links import peers
from shardmq.replication.store.envelope import SealedEdits
from shardmq.shards.storage.schema import STATE
from shardmq.storage.versions import VERSION

from .replicas import Group, group


@pytest.fixture
def replicas() -> Iterator[Group]:
    with group() as replicas:
        yield replicas


def beat(at: float) -> Beat:
    return Beat(1, at, 2, 3, 0.5)


def record(index: int) -> Record:
    return Record(1, 2, index, index - 1, 0.5, SealedEdits.sealed([(STATE, b"key", b"value")]))


def indexes(heard: list[Message]) -> list[int]:
    return [message.index for message in heard if isinstance(message, Record)]


def test_stores_of_two_formats_do_not_copy_from_one_another_until_both_have_risen(
    replicas: Group, caplog: pytest.LogCaptureFixture
) -> None:
    one, other, late = (replicas.add(host) for host in "abc")
    late.engine.raise_version(VERSION + 1)
    replicas.introduce()
    said = rf"c\.shard-0 has a store of format {VERSION + 1}, and a\.shard-0 one of format {VERSION}; replicas copy"
    replicas.until(lambda: re.search(said, caplog.text))
    assert late.links.connected == []
    replicas.say("a", "b", beat(1.0))

    for replica in (one, other):
        replica.engine.raise_version(VERSION + 1)
        replica.links.format_has_risen()
    replicas.until(lambda: len(late.links.connected) == len(one.links.connected) == 2)
    assert "b" not in one.lost, "who is connected stays so"
    replicas.say("a", "c", beat(2.0))


def test_a_session_goes_on_when_a_store_has_risen_and_the_other_end_hears_of_it_before_anything_else(
    replicas: Group,
) -> None:
    a, b = replicas.add("a"), replicas.add("b")
    told: list[tuple[int, list[int]]] = []
    b.links.on_format = lambda version: told.append((version, indexes(b.heard)))
    replicas.introduce()
    replicas.say("a", "b", record(1))

    a.engine.raise_version(VERSION + 1)
    a.links.format_has_risen()
    a.links.send("b", record(2))
    replicas.until(lambda: indexes(b.heard) == [1, 2])
    assert told == [(VERSION + 1, [1])]
    assert a.lost == b.lost == []


def test_a_replica_hears_of_a_later_format_from_one_that_calls_and_talks_with_it_once_it_has_risen(
    replicas: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "VERSION", VERSION + 1)
    a, b = replicas.add("a"), replicas.add("b")

    def rise(version: int) -> None:
        b.engine.raise_version(version)
        b.links.format_has_risen()

    b.links.on_format = rise
    a.engine.raise_version(VERSION + 1)
    replicas.introduce()
    replicas.say("a", "b", beat(1.0))
    replicas.say("b", "a", beat(2.0))
    assert b.engine.version == VERSION + 1
