"""The users of a first start."""

from shardmq.coordinator.users import guest
from shardmq.passwords import verify_password


def test_guest_is_guest() -> None:
    assert guest().name == "guest"
    assert verify_password("guest", guest().password)
