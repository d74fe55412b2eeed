"""Garbage collection that does not stop a process for long."""

import gc
from typing import Final

YOUNG_MAX: Final = 10_000
"""So many more objects than were freed are made before the young ones are looked through. Messages on their way take
some thousand: with Python's 700, each pass looked through them, and took them for old ones, of which so many made it
look through everything. With 100,000 bindings that took a gateway 250 ms, twice in 60,000 messages."""


def exempt_startup() -> None:
    """Leave what is there now out of all garbage collections to come; called once a process is ready.

    That is modules, classes and what was loaded from disk, 30,000 objects and more. To go through them took a gateway
    without any traffic 12 to 35 ms, in which no client was served. Collections are rarer from here on, too.
    """
    gc.freeze()
    gc.set_threshold(YOUNG_MAX, *gc.get_threshold()[1:])


def forget_startup() -> None:
    """Take what was exempted into a collection, as most of it is referred to no more: what a term had in memory."""
    gc.unfreeze()
    gc.collect()
    exempt_startup()
