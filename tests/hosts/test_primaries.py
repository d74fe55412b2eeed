"""The check for two primaries finds them: in notes that are made, and in those of processes without a lease."""

import importlib.util
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from shardmq.cmd.bench.compare.rabbitmq import Absent
from tests.hosts.broker import HostsBroker
from tests.hosts.faults.clocks import Clock, Rates
from tests.hosts.faults.nemesis import Nemesis
from tests.hosts.faults.primaries import sitecustomize
from tests.hosts.faults.primaries.answers import Answers, import_path, overlaps
from tests.hosts.hosts import CLIENT, MEMBERS, NAMES, Hosts
from tests.running import without

FIRST = Answers("shard-0", "a", 11, term=3, first_index=100, released=150, began=50.0, ended=50.9)
NEXT = Answers("shard-0", "b", 12, term=4, first_index=151, released=170, began=52.0, ended=52.9)

UNLEASED = """
import importlib.util
import sys

spec = importlib.util.spec_from_file_location("noting", {noting!r})
spec.loader.exec_module(importlib.util.module_from_spec(spec))
if {{"shard", "coordinator"}} & {{*sys.orig_argv}}:
    from shardmq.replication.core.primary import Primary

    Primary._has_lease = lambda *_: True
"""
"""What the processes of hosts load: it notes what they answer, and takes the lease out of them."""


def test_primaries_that_follow_one_another_are_in_order() -> None:
    later = replace(NEXT, released=190, began=53.0, ended=53.9)
    elsewhere = replace(FIRST, group="shard-1", term=9, began=52.5, ended=52.9)
    assert overlaps([FIRST, NEXT, later, elsewhere]) == []


def test_who_answers_after_the_next_primary_did_is_found() -> None:
    late = replace(FIRST, began=52.0, ended=52.25)
    assert overlaps([FIRST, late, NEXT]) == ["shard-0: a in term 3 answered 0.250 s after b in term 4 did"]
    far = replace(NEXT, host="c", pid=13, term=6, first_index=200, released=200)
    assert len(overlaps([FIRST, late, far])) == 1


def test_a_place_of_the_log_that_two_primaries_confirmed_is_found() -> None:
    told = "shard-0: a in term 3 answered up to 151, and b in term 4 began at 151"
    assert overlaps([replace(FIRST, released=151), NEXT], [(0.0, 100.0)]) == [told]


def test_two_processes_that_answer_in_one_term_are_found() -> None:
    assert overlaps([FIRST, replace(FIRST, host="b")]) == ["shard-0: a (pid 11) and b (pid 11) answered in term 3"]
    assert overlaps([FIRST, replace(FIRST, pid=13)]) == ["shard-0: a (pid 11) and a (pid 13) answered in term 3"]


@pytest.mark.parametrize(
    ("began", "ended", "wrongs"), [(51.0, 52.1, 0), (40.0, 50.3, 0), (40.0, 50.2, 1), (52.3, 60.0, 1)]
)
def test_clocks_that_ran_too_unevenly_for_leases_excuse_what_came_soon(began: float, ended: float, wrongs: int) -> None:
    assert len(overlaps([replace(FIRST, ended=52.25), NEXT], [(began, ended)])) == wrongs


def test_clocks_are_uneven_from_the_first_that_is_too_fast_for_another_to_the_last(tmp_path: Path) -> None:
    rates = Rates({name: Clock(tmp_path / name) for name in NAMES})
    rates.run("a", 1.25)
    assert rates.uneven == []
    rates.run("b", 0.8)
    [(began, ended)] = rates.uneven
    assert ended == float("inf")
    rates.run("a", 2.0)
    rates.run("b", 1.0)
    assert rates.uneven == [(began, ended)]
    rates.run("a", 1.0)
    [(since, until)] = rates.uneven
    assert since == began < until < ended
    rates.close()


def test_notes_of_processes_of_one_replica_are_behind_one_another(tmp_path: Path) -> None:
    for pid in range(2):
        notes = sitecustomize.Notes(tmp_path / "a.shard-0")
        for at in (5.25, 5.5, 6.5):
            notes.note(1 + pid, {1: 7}, 9, at, at + 0.125)
    rows = [row for row in sitecustomize.ROW.iter_unpack((tmp_path / "a.shard-0").read_bytes()) if row[0]]
    assert [row[1:] for row in rows] == [
        (1, 7, 9, 5.375, 5.5),
        (1, 7, 9, 6.625, 6.5),
        (2, sitecustomize.UNKNOWN, 9, 5.375, 5.5),
        (2, sitecustomize.UNKNOWN, 9, 6.625, 6.5),
    ]


@pytest.fixture
def unleased(tmp_path: Path) -> Iterator[Nemesis]:
    """With a broker that runs, whose primaries answer though their lease has ended."""
    noting = importlib.util.find_spec(sitecustomize.__name__)
    assert noting is not None
    (tmp_path / "sitecustomize.py").write_text(UNLEASED.format(noting=noting.origin))
    try:
        with Hosts() as hosts:
            broker = HostsBroker(hosts, "unleased")
            nemesis = Nemesis(hosts, broker)
            try:
                for name in NAMES:
                    broker.variables[name]["PYTHONPATH"] = f"{tmp_path}:{import_path()}"
                broker.start(*NAMES)
                broker.wait_for(broker.is_whole, "all groups are whole")
                yield nemesis
            finally:
                print(broker.last_words())
                nemesis.close()
    except Absent as reason:
        without(reason)


def test_a_primary_that_answers_without_a_lease_while_it_is_cut_off_is_found(unleased: Nemesis) -> None:
    broker, answers = unleased.broker, unleased.answers
    before = broker.group("shard-0")
    primary = before["primary"]
    for other in {*NAMES, *MEMBERS, CLIENT} - {primary}:
        unleased.weather.cut((primary, other), (other, primary))
    broker.wait_for(lambda: broker.group("shard-0")["primary"] != primary, "another host leads")
    found = f"shard-0: {primary} in term {before['term']} answered"
    broker.wait_for(lambda: any(wrong.startswith(found) for wrong in overlaps(answers.read())), "both have answered")
