"""Brokers whose passwords take as long to guess as users'."""

from collections.abc import Iterator

import pytest

from shardmq.topology import passwords
from tests.warm import PASSWORD_COST


@pytest.fixture(scope="module", autouse=True)
def slow_passwords() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(PASSWORD_COST, str(passwords.COST))
        yield
