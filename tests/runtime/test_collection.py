"""What garbage collections of a process go through."""

import gc
from collections.abc import Iterator

import pytest

from shardmq.runtime.collection import exempt_startup


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    yield
    gc.unfreeze()


def test_what_was_there_at_the_start_is_not_looked_at_again() -> None:
    there = [[]]  # type: list[list[object]]
    exempt_startup()
    assert not any(each is there for each in gc.get_objects())
    there[0].append(there)
    later = [there]
    assert any(each is later for each in gc.get_objects())
