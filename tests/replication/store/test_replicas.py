"""Replicas that took the same records hold the same rows: streamed, joined, rejoined, after crashes, on any engine."""

import random
import resource
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from shardmq.errors import RowDamaged, StoreRefused
from shardmq.replication.core.note import BEGINNING, Key
from shardmq.replication.store.digest import digest_from, digest_of
from shardmq.replication.store.faults import OutOfOrder, ReplicaFull, TermRefused
from shardmq.replication.store.key_range import read_range
from shardmq.replication.store.record_ring import RecordRing
from shardmq.replication.store.tail import tail_of
from shardmq.shards.storage.schema import LAYOUT, SEGMENTS, SPILLED, STATE, edit_value
from shardmq.storage.redo.log import REDO_BYTES

from .pair import common_point
from .stores import Host, Traffic, joined, room, size_of

STEPS = 120


class Group:
    """Three replicas of one store; each record's digest is noted when the primary has it."""

    def __init__(self, folder: Path, seed: int, on_disk: Sequence[bool]) -> None:
        self.dice = random.Random(seed)
        self.traffic = Traffic(seed)
        self.hosts = [Host(folder / str(number) if disk else None) for number, disk in enumerate(on_disk)]
        self.digests: dict[tuple[int, int], int] = {}
        self.term, self.leader, self.released = 1, self.hosts[0], 0
        self.rejoined = self.anew = 0
        self.leader.lead(1, adopt_as="1")
        self.note_digest()
        for host in self.followers:
            joined(self.primary, host.follow())

    @property
    def primary(self):  # type: ignore[no-untyped-def]
        assert self.leader.primary is not None
        return self.leader.primary

    @property
    def followers(self) -> list[Host]:
        return [host for host in self.hosts if host is not self.leader]

    def note_digest(self) -> None:
        note = self.primary.replica.note
        self.digests[note.term, note.index] = digest_of(self.leader.engine).value

    def check(self, host: Host) -> None:
        assert host.follower is not None
        note = host.follower.note
        assert digest_of(host.engine).value == self.digests[note.term, note.index], note

    def commit(self) -> None:
        edits = self.traffic.commit()
        self.primary.apply(iter(edits), self.dice.choice((None, size_of(edits), size_of(edits))))
        self.note_digest()

    def deliver(self, host: Host, most: int) -> None:
        """Some of the records it lacks, some of them in one commit; bytes as they come from a link."""
        assert host.follower is not None
        lacking = self.leader.ring.above(host.follower.note.index)[:most]
        while lacking:
            count = self.dice.choice((1, 1, 3))
            host.follower.apply([host.follower.opened(bytes(record.data)) for record in lacking[:count]])
            del lacking[:count]
        self.check(host)

    def release(self) -> None:
        least = min(host.follower.note.index for host in self.followers if host.follower is not None)
        self.released = max(self.released, least)
        self.primary.replica.release(self.released)
        for host in self.followers:
            if host.follower is not None and self.dice.random() < 0.5:
                host.follower.release(self.released)

    def rest(self) -> None:
        host = self.dice.choice(self.hosts)
        if self.dice.random() < 0.5:
            host.engine.rest(float("inf"))

    def crash(self) -> None:
        host = self.dice.choice(self.followers)
        host.crash()
        host.follow()
        self.check(host)

    def fail_over(self) -> None:
        """The primary is killed; whoever has all that was released takes over; the others rejoin."""
        self.leader.crash()
        self.leader = self.dice.choice(self.followers)  # all of them are in sync
        note = self.leader.follower.note  # type: ignore[union-attr]
        self.term += 1
        self.leader.lead(self.term)
        assert digest_of(self.leader.engine).value == self.digests[note.term, note.index]
        self.traffic.go_on(self.leader.engine)
        self.commit()
        for host in self.followers:
            self.rejoin(host)

    def rejoin(self, host: Host) -> None:
        follower = host.follower or host.follow()
        follower.promise(self.term)
        replica = self.primary.replica
        common = common_point(follower.note, replica.note)
        tail = tail_of(replica, self.leader.ring, common, follower.replica.touched.above(common))
        if tail is None:
            joined(self.primary, follower)
            self.anew += 1
        else:
            follower.rejoin(bytes(tail))
            self.rejoined += 1
        assert follower.note.index == replica.note.index
        self.check(host)

    def close(self) -> None:
        for host in self.hosts:
            host.close()


@pytest.mark.parametrize("on_disk", [(True, True, True), (True, False, True), (False, True, False), (False,) * 3])
@pytest.mark.parametrize("seed", range(4))
def test_replicas_have_the_primarys_rows_as_of_their_last_record(seed: int, on_disk: Sequence[bool]) -> None:
    with room() as folder, closing(Group(folder, seed, on_disk)) as group:
        for _ in range(STEPS):
            chance = group.dice.random()
            if chance < 0.5:
                group.commit()
            elif chance < 0.8:
                group.deliver(group.dice.choice(group.followers), group.dice.choice((1, 2, 9)))
            elif chance < 0.88:
                group.release()
            elif chance < 0.93:
                group.rest()
            elif chance < 0.97:
                group.crash()
            else:
                group.fail_over()
        group.fail_over()
        for host in group.followers:
            group.deliver(host, 999)
        assert (group.rejoined > 0, group.anew) == (True, 0)
        assert len({digest_of(host.engine).value for host in group.hosts}) == 1


def test_a_store_that_missed_what_is_forgotten_has_to_join() -> None:
    with room() as folder, closing(Group(folder, 1, (True, True, False))) as group:
        for _ in range(30):
            group.commit()
        group.deliver(group.hosts[1], 999)
        replica, late = group.primary.replica, group.hosts[2].follower
        assert late is not None
        since = late.note.index
        assert tail_of(replica, RecordRing(), since, ()) is not None
        replica.release(20)
        assert tail_of(replica, RecordRing(), since, ()) is None
        assert tail_of(replica, RecordRing(), 20, ()) is not None
        group.commit()  # the note says so from here on
        group.leader.crash()
        replica = group.leader.lead(1).replica
        assert (tail_of(replica, RecordRing(), 19, ()), replica.note.released) == (None, 20)
        assert tail_of(replica, group.leader.ring, since, ()) is not None


@pytest.mark.parametrize("on_disk", [(True, True), (False, True), (True, False)])
@pytest.mark.parametrize("seed", range(3))
def test_a_join_between_passes_is_exact_and_goes_on_after_a_crash(seed: int, on_disk: Sequence[bool]) -> None:
    dice, traffic = random.Random(seed), Traffic(seed)
    with room() as folder:
        source, target = (Host(folder / str(n) if disk else None) for n, disk in enumerate(on_disk))
        with closing(source), closing(target):
            primary = source.lead(3, adopt_as="7")
            for _ in range(150):
                primary.apply(traffic.commit(), 1000)
            for begins in range(3):  # the second and the third find rows of another life there
                newcomer = target.follow()
                newcomer.begin_join(primary.replica.note, ())
                place: Key | None = BEGINNING
                while place is not None:
                    assert newcomer.note.copied == place
                    data, place = read_range(primary, primary.replica.note, place, 1500)
                    newcomer.put_range(bytes(data))
                    for _ in range(dice.randrange(4)):
                        primary.apply(traffic.commit(), 1000)
                    if dice.random() < 0.1:
                        target.crash()
                        newcomer = target.follow()
                        assert newcomer.note.copied == place
                    lacking = source.ring.above(newcomer.note.index)
                    for record in lacking:
                        newcomer.apply([newcomer.opened(record.data)])
                    newcomer.rest(float("inf" if dice.random() < 0.3 else 0))
                assert newcomer.note.is_complete
                assert newcomer.note.incarnation == "7"
                assert str(digest_of(source.engine)) == str(digest_of(target.engine))
                for _ in range(40):
                    primary.apply(traffic.commit(), 1000)
                if begins == 0:  # what it has besides is its own, and goes
                    target.engine.apply([(STATE, b"strange", b"row"), *Traffic(99).commit()])


def test_a_newcomer_is_no_primary_before_its_join_ended() -> None:
    with room() as folder:
        host = Host(folder / "new")
        assert not host.follow().note.is_complete
        host.close()
        with pytest.raises(StoreRefused, match="its join did not end"):
            host.lead(1, adopt_as="1")


def test_a_follower_takes_no_record_but_the_next_and_none_of_a_lower_term() -> None:
    with room() as folder, closing(Group(folder, 5, (True, True, False))) as group:
        for _ in range(4):
            group.commit()
        host = group.hosts[1]
        follower = host.follower
        assert follower is not None
        records = [follower.opened(record.data) for record in group.leader.sent]
        for wrong in ([records[1]], [records[0], records[2]], [records[0], records[0]]):
            with pytest.raises(OutOfOrder, match="which follows one of term"):
                follower.apply(wrong)
        assert follower.apply(records[:2]) == 2
        follower.promise(4)
        follower.promise(4)
        with pytest.raises(TermRefused, match="promised term 4, and takes nothing of term 1") as refused:
            follower.apply(records[2:])
        assert refused.value.promised == 4
        host.crash()
        follower = host.follow()
        assert (follower.note.promised, follower.note.index) == (4, 2)
        with pytest.raises(TermRefused):
            follower.promise(3)
        with pytest.raises(TermRefused):
            host.lead(3)
        host.lead(4).apply([(STATE, b"x", b"of term 4")], 20)
        follower = group.hosts[2].follower
        assert follower is not None
        follower.apply(records[:3])
        with pytest.raises(OutOfOrder):  # its index would be the next: 3 of term 1 is there, and 2 was before it
            follower.apply([follower.opened(host.sent[-1].data)])


def test_a_damaged_row_stops_a_join_and_is_sent_to_nobody() -> None:
    with room() as folder, closing(Group(folder, 5, (False, False, True))) as group:
        for _ in range(9):
            group.commit()
        rows = group.leader.rows.values[SEGMENTS]
        key = max(rows)
        rows[key] = rows[key][:-1] + bytes((rows[key][-1] ^ 1,))
        group.hosts[2].engine.sync()
        with pytest.raises(RowDamaged, match="is not copied to another host; repair the store first"):
            joined(group.primary, group.hosts[2].follower)  # type: ignore[arg-type]
        with pytest.raises(RowDamaged, match="is not copied to another host"):
            tail_of(group.primary.replica, group.leader.ring, 0, ())
        assert not group.hosts[2].follower.note.is_complete  # type: ignore[union-attr]


def test_a_digest_is_the_sum_of_its_ranges_and_leaves_out_what_is_not_shared() -> None:
    with room() as folder, closing(Group(folder, 6, (True, False, False))) as group:
        for _ in range(60):
            group.commit()
        engine = group.leader.engine
        whole, place = digest_of(engine), BEGINNING
        parts = []
        while True:
            part, then = digest_from(engine, place, None, 700)
            parts.append(part)
            if then is None:
                break
            assert digest_of(engine, place, then) == part
            place = then
        assert len(parts) > 5
        assert sum(parts[1:], parts[0]) == whole
        group.primary.apply([(SPILLED, b"k", b"v")], 9)
        engine.sync()
        assert digest_of(engine) == whole
        group.primary.apply([(STATE, b"k", b"v")], 9)
        assert digest_of(engine) != whole


def test_edits_that_are_not_shared_make_no_record() -> None:
    with room() as folder, closing(Host(folder / "a")) as host:
        primary = host.lead(1, adopt_as="1")
        primary.apply([], 0)
        primary.apply([(SPILLED, b"k", b"v")], 9)
        assert (primary.index, host.sent) == (0, [])
        primary.apply([(SPILLED, b"k", None), (STATE, b"k", b"v")], 9)
        assert (primary.index, [key for _, key, _ in host.sent[0].edits]) == (1, [b"k"])
        assert primary.get(SPILLED, b"k") is None


def test_a_large_commit_is_copied_once_and_its_body_may_change_afterwards() -> None:
    with room() as folder, closing(Host(folder / "a")) as host, closing(Host(folder / "b")) as other:
        primary, value = host.lead(1, adopt_as="1"), bytearray(8 << 20)
        joined(primary, other.follow())

        def edits():  # type: ignore[no-untyped-def]
            for number in range(3):
                value[:2] = b"%02d" % number
                yield STATE, b"%d" % number, value

        primary.apply(edits(), 3 * len(value))
        assert len(host.sent[0].data) < 3 * len(value) + 200
        assert other.follower is not None
        other.follower.apply([other.follower.opened(host.sent[0].data)])
        assert digest_of(host.engine) == digest_of(other.engine)
        assert [bytes(host.engine.get(STATE, b"%d" % n)[8:10]) for n in range(3)] == [b"00", b"01", b"02"]  # type: ignore[index]


@pytest.fixture
def small_files() -> Iterator[None]:
    """Files of this process end where a redo log does, as on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (REDO_BYTES, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.usefixtures("small_files")
def test_a_full_disk_is_a_refusal_and_what_is_there_stays() -> None:
    with room() as folder, closing(Host(None)) as source, closing(Host(folder / "a")) as target:
        primary = source.lead(1, adopt_as="1")
        for number in range(30):
            primary.apply([(STATE, b"%d" % number, bytes(500_000))], None)
        newcomer = target.follow()
        with pytest.raises(ReplicaFull, match="make room on it: until then this replica cannot follow"):
            joined(primary, newcomer, 1_000_000)
        assert newcomer.note.copied is not None
        assert newcomer.note.copied > BEGINNING
        target.crash()
        newcomer = target.follow()
        assert newcomer.note.copied is not None
        primary.replica.release(30)
        newcomer.begin_join(primary.replica.note, ())
        primary.apply([(STATE, b"more", bytes(500_000)) for _ in range(9)], None)
        large = newcomer.opened(source.sent[-1].data)
        with pytest.raises(ReplicaFull):
            newcomer.apply([large])
        target.crash()
        assert target.follow().note.index == large.index - 1


def test_an_edits_value_is_found_again_in_what_is_stored() -> None:
    dice = random.Random(3)
    for database in range(len(LAYOUT.databases)):
        for value in (b"", dice.randbytes(8), dice.randbytes(30)):
            key = dice.randbytes(16)
            stored = bytes(LAYOUT.stored_value(database, key, value))
            found = edit_value(database, key, memoryview(stored))
            assert found is None or bytes(LAYOUT.stored_value(database, key, found)) == stored
