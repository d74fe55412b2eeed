"""Tables of the documents have all there is, and nothing else."""

import re

import pytest

from shardmq.topology.arguments import CONSISTENT_HASH_ARGUMENTS, QUEUE_ARGUMENTS
from shardmq.topology.entities import PARTITION_EXCHANGE
from shardmq.topology.exchanges import TYPES
from tests.docs.document import ROOT, Document
from tests.house.tree import SOURCES

TROUBLE = [Document(ROOT / "docs/operations" / f"{name}.md") for name in ("troubleshooting", "hosts-failures", "etcd")]
QUEUES = Document(ROOT / "docs/guide/exchanges-and-queues.md")
AMQP = Document(ROOT / "docs/amqp.md")
CLIENTS = {
    "pika": "test_pika.py",
    "py-amqp": "test_py_amqp.py",
    "kombu": "test_kombu.py",
    "Celery": "test_celery.py",
    "aio-pika": "test_aio_pika.py",
    "amqplib (Node)": "test_amqplib.py",
    "the Java client": "test_java.py",
    "amqp-tools (C)": "test_amqp_tools.py",
}
"""Who is said to work over AMQP, and what shows it."""

PIECE_MIN = 8
"""Characters of an error's text that tell it from others: names stand between, and the system's own words behind."""

ROOMS = re.findall(r"^\| `([^`]+)` \|", Document(ROOT / "docs/architecture.md").section("Where what is"), re.M)


def test_the_tables_of_arguments_have_all_there_are_and_no_others() -> None:
    rows = re.findall(r"^\| (`.*?) \|", QUEUES.text, re.M)
    named = {name for row in rows for name in re.findall(r"`([^`]+)`", row)}
    assert named == {
        *QUEUE_ARGUMENTS,
        *CONSISTENT_HASH_ARGUMENTS,
        *(TYPES.keys() - {PARTITION_EXCHANGE}),
        "alternate-exchange",
    }


def test_clients_that_are_claimed_are_those_that_tests_run() -> None:
    found = re.search(r"It is tested with (.*?), and with the", " ".join(AMQP.text.split()))
    assert found is not None
    assert set(found[1].split(", ")) == set(CLIENTS)
    for file in CLIENTS.values():
        assert (ROOT / "tests/amqp" / file).is_file(), file


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


@pytest.mark.parametrize("page", TROUBLE, ids=lambda page: page.path.stem)
def test_errors_that_people_look_up_are_what_the_sources_say(page: Document) -> None:
    sources = "".join(path.read_text() for path in SOURCES if "tests" not in path.relative_to(ROOT).parts)
    joined = re.sub(r'"\s*\n\s*f?"', "", sources)
    for row in re.findall(r"^\| (.*?) \|", page.text, re.M):
        for words in re.findall(r"`([^`]+)`", row):
            if " " not in words:
                continue
            pieces = [piece.strip(" ':") for piece in words.split("…")]
            assert any(len(piece) >= PIECE_MIN and piece in joined for piece in pieces), words
