"""Tables of the documents have all there is, and nothing else."""

import re

import pytest

from shardmq.topology.arguments import CONSISTENT_HASH_ARGUMENTS, QUEUE_ARGUMENTS
from shardmq.topology.exchanges import TYPES
from tests.docs.document import ROOT, Document

QUEUES = Document(ROOT / "docs/guide/exchanges-and-queues.md")
ROOMS = re.findall(r"^\| `([^`]+)` \|", Document(ROOT / "docs/architecture.md").section("Where what is"), re.M)


def test_the_tables_of_arguments_have_all_there_are_and_no_others() -> None:
    rows = re.findall(r"^\| (`.*?) \|", QUEUES.text, re.M)
    named = {name for row in rows for name in re.findall(r"`([^`]+)`", row)}
    assert named == {*QUEUE_ARGUMENTS, *CONSISTENT_HASH_ARGUMENTS, *TYPES, "alternate-exchange"}


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_exist(room: str) -> None:
    assert (ROOT / room).is_dir() if room.endswith("/") else (ROOT / room).is_file()


def test_every_room_of_the_tree_is_in_the_table() -> None:
    inner = {
        f"shardmq/{path.parent.name}/"
        for path in (ROOT / "shardmq").glob("*/__init__.py")
        if not path.parent.is_symlink()
    }
    assert inner <= set(ROOMS)
