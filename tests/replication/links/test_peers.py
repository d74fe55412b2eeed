"""Replicas of a group talk with one another, and with nobody else; what may be lost is told."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardmq.bus import dialer
from shardmq.bus.curve import ALLOWED, REPLICA, SHARD, CurveKeys, create_pair, process_name
from shardmq.bus.dialer import Dialer
from shardmq.bus.listener import Listener
from shardmq.bus.messages.shard import ToShard
from shardmq.bus.poller import context
from shardmq.replication.core.messages import Ack, Beat, Message, Record
from shardmq.replication.links import peers
from shardmq.replication.links.outgoing import WAITING_BYTES_MAX
from shardmq.replication.links.wire import Taken
from shardmq.replication.store.envelope import SealedEdits
from shardmq.shards.storage.schema import STATE

from .replicas import INSECURE, SECONDS, Group, free_address, group
from .tampering import TamperingProxy


@pytest.fixture
def replicas() -> Iterator[Group]:
    with group() as replicas:
        yield replicas


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """Keys of the processes of three hosts."""
    for host in "abc":
        for process in ("shard-0", "shard-1", "coordinator", "gateway-0"):
            create_pair(tmp_path / "keys", process_name(host, process))
    return tmp_path / "keys"


def beat(at: float) -> Beat:
    return Beat(1, at, 2, 3, 0.5)


def record(index: int, value: bytes = b"value") -> Record:
    return Record(1, 2, index, index - 1, 0.5, SealedEdits.sealed([(STATE, b"key", value)]))


def indexes(heard: list[Message]) -> list[int]:
    return [message.index for message in heard if isinstance(message, Record)]


def test_three_replicas_with_keys_tell_one_another_all_in_order(replicas: Group, keys: Path) -> None:
    a, b, c = (replicas.add(host, CurveKeys(keys, f"{host}.shard-0")) for host in "abc")
    replicas.introduce()
    for sender in "abc":
        for to in {*"abc"} - {sender}:
            replicas.say(sender, to, beat(ord(sender)))
    for replica in (a, b, c):
        replica.events.clear()
    for index in range(1, 201):
        for to in "bc":
            a.links.send(to, record(index))
        if index % 7 == 0:
            a.links.flush()
    replicas.until(lambda: len(b.heard) == len(c.heard) == 200)
    assert indexes(b.heard) == indexes(c.heard) == list(range(1, 201))
    b.links.send("a", Ack(1, 2, 200, True))
    c.links.send("b", beat(0))
    replicas.until(lambda: a.heard and len(b.heard) == 201)
    assert a.heard == [Ack(1, 2, 200, True)]
    assert not any(replica.lost for replica in (a, b, c))


def test_replicas_of_one_machine_need_no_keys(replicas: Group, tmp_path: Path) -> None:
    for host in "ab":
        replicas.add(host, address=f"ipc://{tmp_path}/{host}")
    replicas.introduce()
    replicas.say("a", "b", record(1))
    replicas.say("b", "a", beat(1))


def test_what_was_said_to_nobody_is_told_as_lost_once_somebody_is_there(replicas: Group) -> None:
    a = replicas.add("a")
    b = replicas.add("b")
    b.close()
    a.links.set_peers({"a": a.address, "b": b.address})
    a.links.send("b", record(1))
    a.links.send("z", record(1))
    for _ in range(5):
        a.turn()
    assert a.events == []
    replicas.add("b", address=b.address)
    replicas.introduce()
    replicas.until(lambda: a.lost)
    assert a.lost == ["b"]
    replicas.say("a", "b", beat(1))
    assert a.lost == ["b"]


def test_a_replica_that_ends_is_lost_to_all(replicas: Group) -> None:
    a, b, c = (replicas.add(host) for host in "abc")
    replicas.introduce()
    for to in "bc":
        replicas.say("a", to, beat(1))
        replicas.say(to, "a", beat(1))
    for replica in (a, b, c):
        replica.events.clear()
    b.close()
    again = replicas.add("b", address=b.address)
    replicas.introduce()
    # Either way it talked: what is said before that is noticed is lost, too, and told by this.
    replicas.until(lambda: a.lost == ["b", "b"])
    replicas.say("b", "a", beat(7))
    replicas.say("a", "b", beat(8))
    assert {*a.lost} == {"b"}
    assert "b" in a.lost[: a.events.index(a.events[-1]) + 1]
    assert c.lost == [] or {*c.lost} == {"b"}
    assert beat(1) not in again.heard


def test_replicas_come_go_and_move(replicas: Group) -> None:
    a, b = replicas.add("a"), replicas.add("b")
    replicas.introduce()
    replicas.say("a", "b", beat(1))
    generation = a.links.generation
    b.close()
    b = replicas.add("b")
    c = replicas.add("c")
    replicas.introduce()
    assert a.links.generation == generation + 3
    assert len(a.links.sources) == 3
    for to in "bc":
        replicas.say("a", to, beat(2))
        replicas.say(to, "a", beat(2))
    a.events.clear()
    with TamperingProxy(c.address) as elsewhere:
        a.links.set_peers({"c": elsewhere.address})
        replicas.say("a", "c", beat(2))
        assert a.lost == ["c"]  # though c has not been away
    a.links.set_peers({"a": a.address, "c": c.address, "b": ""})
    assert len(a.links.sources) == 2
    a.links.send("b", beat(3))
    replicas.say("a", "c", beat(3))
    assert beat(3) not in b.heard


def test_a_replica_that_does_not_read_is_lost_and_nothing_more_waits_for_it(
    replicas: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "SILENCE_SECONDS", 10 * SECONDS)  # as it seldom ticks
    a, b = replicas.add("a"), replicas.add("b")
    replicas.introduce()
    replicas.say("a", "b", beat(1))
    value = b"x" * (1 << 20)
    sent = 0
    while not a.lost:
        assert sent <= WAITING_BYTES_MAX // len(value) + 1
        sent += 1
        a.links.send("b", record(sent, value))
        a.turn(seconds=0)
    assert sent * len(value) >= WAITING_BYTES_MAX - len(value)
    b.events.clear()
    replicas.say("a", "b", beat(2))
    assert "a" in b.lost
    before = indexes(b.heard)
    assert before == list(range(1, len(before) + 1))
    assert len(before) < sent  # what waited was dropped
    b.events.clear()
    a.events.clear()
    deadline = time.monotonic() + SECONDS
    for index in range(1, 2 * sent):  # and who reads gets any amount, however seldom it ticks
        a.links.send("b", record(index, value))
        a.turn(seconds=0)
        while len(b.heard) < index - 8:
            assert time.monotonic() < deadline
            b.events += b.links.receive()
    assert a.lost == b.lost == []
    replicas.until(lambda: len(b.heard) == 2 * sent - 1)


@pytest.mark.parametrize("sizes", [[WAITING_BYTES_MAX + 1], [5 * WAITING_BYTES_MAX // 8] * 2])
def test_a_message_of_any_size_goes_where_little_waits(
    replicas: Group, monkeypatch: pytest.MonkeyPatch, sizes: list[int]
) -> None:
    monkeypatch.setattr(peers, "SILENCE_SECONDS", 10 * SECONDS)
    a, b = replicas.add("a"), replicas.add("b")
    replicas.introduce()
    replicas.say("a", "b", beat(1))
    for index, size in enumerate(sizes, 1):
        a.links.send("b", record(index, bytes(size)))
    for number in (2, 3):
        a.links.send("b", beat(number))
    replicas.until(lambda: beat(3) in b.heard)
    assert indexes(b.heard) == list(range(1, len(sizes) + 1))
    assert a.lost == b.lost == []


def test_edits_damaged_on_the_way_are_lost_and_not_taken(replicas: Group, caplog: pytest.LogCaptureFixture) -> None:
    a, b = replicas.add("a"), replicas.add("b")
    with TamperingProxy(b.address) as proxy:
        a.links.set_peers({"b": proxy.address})
        b.links.set_peers({"a": a.address})
        replicas.say("a", "b", record(1))
        replicas.say("b", "a", beat(1))
        a.events.clear()
        b.events.clear()
        proxy.swaps[b"precious"] = b"previous"
        a.links.send("b", record(2))
        a.links.send("b", record(3, b"precious"))
        a.links.send("b", record(4))
        replicas.until(lambda: a.lost and b.lost)
        assert proxy.count == 1
        assert indexes(b.heard) == [2]
        assert re.search(r"a\.shard-0: .* their checksum is not that of their bytes", caplog.text)
        proxy.swaps.clear()
        replicas.say("a", "b", record(3, b"precious"))
        assert indexes(b.heard)[:2] == [2, 3]
        replicas.close()
        replicas.replicas.clear()


def test_a_link_is_made_anew_after_a_cut_that_nobody_was_told_of(
    replicas: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "SILENCE_SECONDS", 0.5)
    a, b = replicas.add("a"), replicas.add("b")
    with TamperingProxy(b.address) as to_b, TamperingProxy(a.address) as to_a:
        a.links.set_peers({"b": to_b.address})
        b.links.set_peers({"a": to_a.address})

        def beats() -> list[float]:
            """When those were sent that were heard last."""
            for one, other in ((a, "b"), (b, "a")):
                one.links.send(other, beat(time.monotonic()))
            return [max((each.at for each in one.heard if isinstance(each, Beat)), default=0.0) for one in (a, b)]

        replicas.until(lambda: min(beats()))
        a.events.clear()
        b.events.clear()
        to_a.is_cut = to_b.is_cut = True
        cut = time.monotonic()
        replicas.until(lambda: beats() and a.lost and b.lost and not a.links.connected and not b.links.connected)
        assert time.monotonic() - cut < 5.0
        to_a.is_cut = to_b.is_cut = False
        healed = time.monotonic()
        replicas.until(lambda: min(beats()) > healed)
        assert time.monotonic() - healed < 5.0
        replicas.close()
        replicas.replicas.clear()


@pytest.mark.parametrize(
    ("host", "group_name", "role"),
    [("b", "shard-1", REPLICA), ("a", "shard-0", REPLICA), ("", "shard-0", REPLICA), ("b", "shard-0", SHARD)],
)
def test_without_keys_it_is_looked_at_who_calls_too(replicas: Group, host: str, group_name: str, role: str) -> None:
    a = replicas.add("a")
    own = context(INSECURE)
    liar = Dialer(own, a.address, role, process_name(host, group_name), Taken, "a.shard-0")
    liar.call_as("f00d", 0)
    replicas.until(lambda: liar.tick(time.monotonic()) or liar.receive() or liar.refused)
    assert "a.shard-0 replicates with its group's replicas on other hosts alone" in liar.refused
    liar.close()
    own.term()


@pytest.mark.parametrize(
    ("key", "host", "group_name", "broker", "words"),
    [
        ("b.shard-1", "b", "shard-1", "f00d", "it is b.shard-1, and a.shard-0 replicates with its group's replicas"),
        ("b.coordinator", "b", "coordinator", "f00d", "it is b.coordinator, and a.shard-0 replicates with its group's"),
        ("b.gateway-0", "b", "shard-0", "f00d", "it says it is 'b.shard-0', and its key is allowed as 'b.gateway-0'"),
        ("b.shard-0", "c", "shard-0", "f00d", "it says it is 'c.shard-0', and its key is allowed as 'b.shard-0'"),
        ("b.shard-0", "b", "shard-0", "beef", "a.shard-0 is another broker's here"),
    ],
)
def test_who_is_no_replica_of_the_group_is_turned_away(
    replicas: Group,
    keys: Path,
    caplog: pytest.LogCaptureFixture,
    key: str,
    host: str,
    group_name: str,
    broker: str,
    words: str,
) -> None:
    a = replicas.add("a", CurveKeys(keys, "a.shard-0"))
    own = context(CurveKeys(keys, key))
    liar = Dialer(own, a.address, REPLICA, f"{host}.{group_name}", Taken, "a.shard-0")
    liar.call_as(broker, 0)
    deadline = time.monotonic() + SECONDS
    while words not in liar.refused and words not in caplog.text:
        assert time.monotonic() < deadline, caplog.text
        liar.tick(time.monotonic())
        liar.receive()
        a.turn()
    assert not liar.is_open
    assert a.events == []
    liar.close()
    own.term()


def test_without_a_key_nobody_gets_in_and_without_a_role_neither(
    replicas: Group, keys: Path, caplog: pytest.LogCaptureFixture
) -> None:
    a = replicas.add("a", CurveKeys(keys, "a.shard-0"))
    replicas.add("b", INSECURE)
    own = context(CurveKeys(keys, "b.gateway-0"))
    gateway = Dialer(own, a.address, "gateway", "b.gateway-0", Taken, "a.shard-0")
    replicas.replicas["b"].links.set_peers({"a": a.address})

    def are_turned_away() -> bool:
        gateway.tick(time.monotonic())
        gateway.receive()
        said = ("it calls without encryption", "it hung up during the handshake")
        return "a gateway may not call a replica" in caplog.text and any(words in caplog.text for words in said)

    replicas.until(are_turned_away)
    assert a.events == []
    gateway.close()
    own.term()


def test_a_host_whose_key_comes_later_is_called_then(
    replicas: Group, keys: Path, caplog: pytest.LogCaptureFixture
) -> None:
    key = keys / ALLOWED / "b.shard-0.key"
    public = key.read_bytes()
    key.unlink()
    replicas.add("a", CurveKeys(keys, "a.shard-0"))
    replicas.add("b", CurveKeys(keys, "b.shard-0"))
    replicas.introduce()
    assert "the public key of b.shard-0 cannot be read" in caplog.text
    key.write_bytes(public)
    replicas.say("a", "b", beat(1))
    replicas.say("b", "a", beat(2))


def test_a_process_listens_for_replicas_beside_its_own_callers(keys: Path, replicas: Group) -> None:
    a = replicas.add("a", CurveKeys(keys, "a.shard-0"))
    replicas.add("b", CurveKeys(keys, "b.shard-0"))
    replicas.introduce()
    callers: Listener[ToShard] = Listener(a.context, free_address(), SHARD, "a.shard-0", ToShard)
    own = context(CurveKeys(keys, "c.gateway-0"))
    gateway = Dialer(own, callers.address, "gateway", "c.gateway-0", Taken, "a.shard-0")

    def are_open() -> bool:
        gateway.tick(time.monotonic())
        gateway.receive()
        callers.receive()
        callers.tick(time.monotonic())
        return gateway.is_open

    replicas.until(are_open)
    replicas.say("b", "a", beat(1))
    callers.close()
    gateway.close()
    own.term()


def test_hosts_of_two_bus_protocols_do_not_copy_from_one_another_and_say_why(
    replicas: Group, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    replicas.add("a")
    replicas.add("c")
    replicas.introduce()
    older = dialer.BUS_PROTOCOL
    replicas.until(lambda: "c" in replicas.replicas["a"].links.connected)
    monkeypatch.setattr(dialer, "BUS_PROTOCOL", older + 1)
    replicas.add("b")
    replicas.introduce()
    said = rf"b\.shard-0 speaks bus protocol {older + 1}, and a\.shard-0 {older}; update both to the same version"
    replicas.until(lambda: re.search(said, caplog.text))
    assert replicas.replicas["b"].links.connected == []
    replicas.say("a", "c", beat(1.0))
