"""Every page of an LMDB file holds one thing, or is free."""

from shardmq.errors import StoreDamaged
from shardmq.storage.pages.page import PageFile


class Account:
    """Notes which pages hold something or are free. Free pages at the end may be missing in the file: never written.

    Args:
        pages: of the file.
    """

    def __init__(self, pages: PageFile) -> None:
        self._pages = pages
        self._last = pages.meta.last_page
        self._marks = bytearray(min(pages.size // pages.page_bytes, self._last + 1))
        self._marks[:2] = b"\1\1"

    def claim(self, first: int, count: int, owner: str) -> None:
        """Note pages that hold something.

        Raises:
            StoreRefused: the file ends before them.
            StoreDamaged: they are not in the file, or were noted before.
        """
        end = first + count
        if first < 2 or end > self._last + 1:
            raise StoreDamaged(self._pages.file, f"pages {first} to {end - 1} are not in it", owner or None)
        if end > len(self._marks):
            raise self._pages.cut_short()
        if any(self._marks[first:end]):
            what = f"pages {first} to {end - 1} hold something else, or are free"
            raise StoreDamaged(self._pages.file, what, owner or None)
        self._marks[first:end] = b"\1" * count

    def free(self, free: dict[int, tuple[int, ...]]) -> None:
        """Note pages that are free.

        Args:
            free: their numbers, in falling order, by the transaction that freed them.

        Raises:
            StoreRefused: the file ends too early.
            StoreDamaged: they are not in the file, or were noted before.
        """
        marks, missing = self._marks, set[int]()
        for transaction, ids in free.items():
            there = ids if not ids or ids[0] < len(marks) else tuple([page for page in ids if page < len(marks)])
            if ids and (ids[0] > self._last or ids[-1] < 2):
                raise StoreDamaged(self._pages.file, f"transaction {transaction} freed pages that are not in it")
            if any(map(marks.__getitem__, there)) or not missing.isdisjoint(ids):
                raise StoreDamaged(self._pages.file, f"transaction {transaction} freed pages that hold something")
            for page in there:
                marks[page] = 1
            if len(there) < len(ids):
                missing.update(ids[: len(ids) - len(there)])
        if len(missing) != self._last + 1 - len(marks):
            raise self._pages.cut_short()

    def lost(self) -> int:
        """Return how many pages neither hold anything nor are free."""
        return self._marks.count(0)
