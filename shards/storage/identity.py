"""Whose a shard's store is: its number, its broker, the newest coordinator it has heard of."""

import secrets

import msgspec

from shardmq.errors import StoreRefused
from shardmq.topology.entities import Queue


class StoreIdentity(msgspec.Struct, array_like=True, frozen=True):
    """The identity of a shard's store.

    Attributes:
        store: names this store, made with it.
        shard: the shard's number.
        broker: the broker's id; "" until a coordinator has enrolled the shard.
        generation: of the newest coordinator that it heard of.
        queue: the highest id of a durable queue that it was ever given.
        is_adopted: it was made before stores knew of themselves.
    """

    store: str
    shard: int
    broker: str = ""
    generation: int = 0
    queue: int = 0
    is_adopted: bool = False


def identified(
    file: object, stored: StoreIdentity | None, queues: list[Queue], shard: int, is_new: bool
) -> StoreIdentity:
    """Return whose a store is.

    Args:
        file: the store's, for the error.
        stored: what is in it; None where it is being made, or was made before stores knew of themselves.
        queues: its durable queues.
        shard: the number it is opened for.
        is_new: whether nothing was ever written to it.

    Raises:
        StoreRefused: it is another shard's.
    """
    others = [queue.shard for queue in queues if queue.shard != shard]
    found = stored.shard if stored is not None else next(iter(others), shard)
    if found != shard:
        raise StoreRefused(
            f"{file} is the store of shard {found}, and was opened as shard {shard}'s: two folders were swapped, or a "
            f"copy was put into the wrong one; put it back as 'shard-{found}'"
        )
    if stored is not None:
        return stored
    highest = max((queue.id for queue in queues), default=0)
    return StoreIdentity(secrets.token_hex(8), shard, queue=highest, is_adopted=not is_new or bool(queues))
