"""The users of a first start."""

from shardmq.coordinator.rules.access import guest
from shardmq.topology.passwords import verify_password


def test_guest_is_guest() -> None:
    assert guest().name == "guest"
    assert verify_password("guest", guest().password)
