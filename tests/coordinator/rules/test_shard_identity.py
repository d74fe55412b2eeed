"""What a coordinator makes of shards that call, and what it writes down of them."""

import msgspec
import pytest

from shardmq.bus.messages.base import Answer
from shardmq.bus.messages.stores import Identity
from shardmq.coordinator.rules.shard_identity import (
    QUEUES_BITS,
    BrokerIdentity,
    ExpectedQueues,
    GenerationPassed,
    Member,
    Members,
    ShardRefused,
    next_generation,
)
from shardmq.coordinator.storage.store import Store
from shardmq.errors import StartupRefused
from shardmq.topology.commands import BeginTransaction, DeclareQueue
from tests.coordinator.conftest import Room

IDENTITY = BrokerIdentity("b", 100, 7, {0: Member("s", 90, 80)})
NOTHING = ExpectedQueues({}, 0, frozenset(), 0)
SHARD = Identity("s", 0, "b", 90, 0, False, [])


def enroll(
    said: Identity, known: ExpectedQueues = NOTHING, identity: BrokerIdentity = IDENTITY
) -> list[dict[int, Member]]:
    written: list[dict[int, Member]] = []
    assert Members(identity, lambda members: written.append(dict(members))).enroll(0, said, known) == 100
    return written


@pytest.mark.parametrize("generation", [80, 85, 90])
def test_a_shard_may_have_missed_what_it_did_not_confirm(generation: int) -> None:
    said = msgspec.structs.replace(SHARD, generation=generation)
    assert enroll(said) == [{0: Member("s", 100, generation)}]


def test_what_is_told_is_written_before_and_what_is_confirmed_after() -> None:
    written: list[dict[int, Member]] = []
    members = Members(IDENTITY, lambda members: written.append(dict(members)))
    members.enroll(0, SHARD, NOTHING)
    members.heard(0)
    members.heard(0)
    assert written == [{0: Member("s", 100, 90)}, {0: Member("s", 100, 100)}]


def test_a_shard_that_is_back_brings_ids_that_this_coordinator_has_given() -> None:
    members = Members(IDENTITY, lambda _: None)
    members.enroll(0, SHARD, NOTHING)
    members.heard(0)
    given = 100 << QUEUES_BITS
    back = msgspec.structs.replace(SHARD, generation=100, queue=given)
    assert members.enroll(0, back, ExpectedQueues({given: ("/", "q")}, 1, frozenset(), 0)) == 100


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"generation": 91}, "the shard has heard of generation 91, and the coordinator told it 90"),
        ({"queues": [(5, "/", "q")]}, "queue 'q' in vhost '/' (id 5), which the coordinator does not know"),
        ({"queues": [(3, "/", "q")]}, "the id 3 is queue 'q' in vhost '/' on the shard, and 'there' in vhost '/'"),
        ({"queue": 100 << QUEUES_BITS}, "the coordinator's next one would be"),
        ({"shard": 1}, "the address given for shard 0 is answered by shard 1"),
    ],
)
def test_a_coordinator_that_is_not_the_newest_refuses_to_go_on(changes: dict[str, object], text: str) -> None:
    known = ExpectedQueues({3: ("/", "there")}, 1, frozenset({4}), 0)
    with pytest.raises(StartupRefused) as caught:
        enroll(msgspec.structs.replace(SHARD, **changes), known)
    assert text in str(caught.value)


def test_a_queue_that_is_to_be_dropped_may_still_be_there() -> None:
    assert enroll(msgspec.structs.replace(SHARD, queues=[(4, "/", "gone")]), ExpectedQueues({}, 0, frozenset({4}), 0))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"generation": 79}, "shard 0's store is older than the coordinator's"),
        ({"broker": "other"}, "expected shard 0 of broker b, but its store belongs to broker other"),
        (
            {"store": "t", "broker": ""},
            "shard 0 has 1 queue registered, but its store is new: expected store s, found t",
        ),
        ({"store": "t"}, "but its store is another one"),
    ],
)
def test_a_shard_whose_store_does_not_belong_there_is_refused(changes: dict[str, object], text: str) -> None:
    known = ExpectedQueues({3: ("/", "there")}, 1, frozenset(), 0)
    with pytest.raises(ShardRefused) as caught:
        enroll(msgspec.structs.replace(SHARD, **changes), known)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"generation": 79}, "has heard of generation 79, and the coordinator has it between 80 and 90"),
        ({"generation": 91}, "has heard of generation 91, and the coordinator has it between 80 and 90"),
        ({"queues": [(5, "/", "q")]}, "has queue 'q' in vhost '/', which is not declared"),
    ],
)
def test_a_store_of_several_hosts_that_was_elected_unclean_serves_and_is_told_of(
    changes: dict[str, object], text: str, caplog: pytest.LogCaptureFixture
) -> None:
    members = Members(IDENTITY, lambda _: None, is_one_of_several=True)
    assert members.enroll(0, msgspec.structs.replace(SHARD, **changes), NOTHING) == 100
    assert text in caplog.text
    with pytest.raises(ShardRefused, match="its store is another one"):
        members.enroll(0, msgspec.structs.replace(SHARD, store="t"), ExpectedQueues({}, 1, frozenset(), 0))


def test_a_store_of_several_hosts_that_missed_nothing_is_not_told_of(caplog: pytest.LogCaptureFixture) -> None:
    known = ExpectedQueues({}, 0, frozenset({5}), 0)
    said = msgspec.structs.replace(SHARD, queues=[(5, "/", "q")])
    assert Members(IDENTITY, lambda _: None, is_one_of_several=True).enroll(0, said, known) == 100
    assert not caplog.text


def test_a_generation_that_only_a_lost_coordinator_can_have_had_is_passed(room: Room) -> None:
    """Its clock was ahead; whether it is lost may be known later than that it was."""
    is_alone = False
    members = Members(IDENTITY, lambda _: None, is_one_of_several=True, is_alone=lambda: is_alone)
    ahead = next_generation(0) + 3_600_000
    assert members.enroll(0, msgspec.structs.replace(SHARD, generation=ahead), NOTHING) == 0
    members.look()
    is_alone = True
    with pytest.raises(GenerationPassed) as passed:
        members.look()
    with pytest.raises(GenerationPassed):
        members.enroll(0, msgspec.structs.replace(SHARD, generation=ahead), NOTHING)
    assert passed.value.generation == ahead
    store = Store.open(room.folder / "coordinator", "first")
    store.load(1)
    store.write_generation(ahead)
    assert store.load(1).identity.generation == ahead + 1
    store.close()


def test_no_transaction_gets_a_number_that_a_shard_knows(room: Room) -> None:
    """A coordinator that was elected unclean may lack those which the lost ones began."""
    room.shard(0)
    room.shards = 1
    room.identities[0] = msgspec.structs.replace(room.identities[0], transaction=149)
    room.start()
    gateway = room.gateway()
    room.perform(gateway, DeclareQueue("/", "q", True, {}))  # the shard is enrolled
    answer = room.perform(gateway, BeginTransaction("/", "t", "anna", 0))
    assert isinstance(answer, Answer)
    assert answer.result == [150, False]


def test_a_new_store_may_serve_where_nothing_is_lost() -> None:
    new = Identity("t", 0, "", 0, 0, False, [])
    assert enroll(new) == [{0: Member("t", 100, 0)}]
    with pytest.raises(ShardRefused, match="1 committed transaction to carry out"):
        enroll(new, ExpectedQueues({}, 0, frozenset(), 1))


def test_a_new_coordinator_refuses_to_take_the_place_of_another() -> None:
    with pytest.raises(StartupRefused, match="the coordinator's store is new"):
        enroll(msgspec.structs.replace(SHARD, broker="other"), identity=BrokerIdentity("b", 100, 1, {}))


def test_a_shard_that_is_refused_is_told_why_and_is_given_nothing(room: Room) -> None:
    shard = room.shard(0)
    room.shards = 1
    room.start()
    gateway = room.gateway()
    room.perform(gateway, DeclareQueue("/", "q", True, {}))
    room.identities[0] = msgspec.structs.replace(room.identities[0], broker="other")
    assigns = shard.assigns
    room.restart()
    room.until(lambda: shard.expelled)
    assert "its store belongs to broker other" in shard.expelled[0]
    assert shard.assigns == assigns


def test_ids_go_on_above_all_that_were_given_before(room: Room) -> None:
    shard = room.shard(0)
    room.shards = 1
    ids: list[int] = []
    for name in ("first", "second"):
        room.start()
        gateway = room.gateway(name)
        room.perform(gateway, DeclareQueue("/", name, True, {}))
        ids.append(shard.queues[name])
        room.hang_up(gateway)
        room.stop()
    assert ids == sorted(set(ids))
    assert ids[1] - ids[0] >= 1 << QUEUES_BITS
