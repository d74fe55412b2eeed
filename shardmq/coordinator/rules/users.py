"""The users of a first start. Their passwords are kept as hashes (`shardmq.topology.passwords`)."""

from shardmq.topology.entities import DEFAULT_VHOST, Permission, User
from shardmq.topology.passwords import hash_password


def guest() -> User:
    """The user of a first start, for connections from the same machine only."""
    return User("guest", hash_password("guest"), ("administrator",))


def guests_permission() -> Permission:
    """That user may do everything in the default virtual host."""
    return Permission("guest", DEFAULT_VHOST, ".*", ".*", ".*")
