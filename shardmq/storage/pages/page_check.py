"""Looks through the structure of an LMDB file before LMDB trusts it.

Every page that holds something is reached exactly once, and is what its place says; what is not reached is free. Pages
of trees are read whole; of values on overflow pages, only the first bytes, so that a store of many gigabytes takes
about a second.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from operator import le
from pathlib import Path
from struct import Struct
from sys import byteorder
from typing import Final

from shardmq.errors import StoreDamaged
from shardmq.storage.pages.page import (
    BRANCH,
    LEAF,
    NO_PAGE,
    NODE,
    NUMBER,
    OVERFLOW,
    OVERFLOW_PAGE,
    PAGE,
    TREE,
    PageFile,
    Tree,
    check_noted,
)
from shardmq.storage.pages.page_account import Account

HEAD_BYTES: Final = 16
"""How much is read of a value on overflow pages."""

_BIG: Final = 1
_SUBTREE: Final = 2
_DEPTH_MAX: Final = 32
_AHEAD: Final = 512
"""How many overflow pages the disk is asked for at once."""

Head = Callable[[bytes, bytes], None]
"""Called with a row's key and its value; of a value on overflow pages, with its first bytes."""

Keys = Callable[[list[bytes]], None]
"""Called with the keys of a database in order, some at a time."""


@dataclass(frozen=True, slots=True)
class Structure:
    """What a file consists of.

    Attributes:
        transaction: number of the last one.
        page_bytes: size of a page.
        pages: how many there are, free ones and meta pages included.
        entries: how many rows each database has.
        free: numbers of free pages, by the transaction that freed them.
        lost: how many pages neither hold anything nor are free; they do no harm.
    """

    transaction: int
    page_bytes: int
    pages: int
    entries: dict[str, int]
    free: dict[int, tuple[int, ...]]
    lost: int


@dataclass(slots=True)
class _Found:
    """What a walk finds of a tree."""

    branch_pages: int = 0
    leaf_pages: int = 0
    overflow_pages: int = 0
    entries: int = 0
    big: list[tuple[int, int, bytes]] = field(default_factory=list)
    values: list[tuple[bytes, bytes]] = field(default_factory=list)


def check_pages(
    file: Path, heads: Mapping[str, Head] | None = None, keys: Mapping[str, Keys] | None = None
) -> Structure:
    """Look through the structure of a file.

    Args:
        file: which nobody writes meanwhile.
        heads: by database, who wants to see its rows.
        keys: by database, who wants to see its keys.

    Raises:
        StoreRefused: it is no LMDB file, or is cut short.
        StoreDamaged: it is not what LMDB wrote.
    """
    pages = PageFile(file)
    try:
        check_noted(pages)
        account = Account(pages)
        free = _free(pages, account)
        _check_newest(pages, free)
        account.free(free)
        entries = {}
        for key, value in _Walk(pages, account, pages.meta.main, "", is_main=True).walk().values:
            name = key.decode(errors="replace")
            if len(value) != TREE.size:
                raise StoreDamaged(file, f"what is noted of its database {name!r} has {len(value)} bytes")
            tree = Tree._make(TREE.unpack(value))
            walk = _Walk(pages, account, tree, name, (heads or {}).get(name), (keys or {}).get(name))
            entries[name] = walk.walk().entries
        return Structure(
            pages.meta.transaction, pages.page_bytes, pages.meta.last_page + 1, entries, free, account.lost()
        )
    finally:
        pages.close()


def free_pages(file: Path) -> dict[int, tuple[int, ...]]:
    """Return the numbers of a file's free pages, by the transaction that freed them.

    Args:
        file: may be open in LMDB in this process, between two commits.

    Raises:
        StoreDamaged: it is not what LMDB wrote.
    """
    pages = PageFile(file)
    try:
        check_noted(pages)
        return _free(pages, Account(pages))
    finally:
        pages.close()


def _check_newest(pages: PageFile, free: dict[int, tuple[int, ...]]) -> None:
    """Make sure that the state which LMDB would take for the newest is the newest.

    Every transaction but the first frees pages, and records them under its number. So an older state with a later
    number lacks the record of that number, and the newest state with an earlier number has a record of a later one.
    """
    newest, older = pages.meta.transaction, pages.older
    if newest > 1 and max(free, default=0) != newest:
        raise StoreDamaged(
            pages.file,
            f"its last transaction has number {newest}, and its last free pages are of "
            f"transaction {max(free, default=0)}",
        )
    last = _last_freed(pages, older.free)
    if last is not None and last > older.transaction:
        raise StoreDamaged(pages.file, f"the state of transaction {last} is noted as that of {older.transaction}")


def _last_freed(pages: PageFile, tree: Tree) -> int | None:
    """Return the last transaction that the older state has freed pages of; None where that was written over."""
    number = tree.root
    for depth in range(min(tree.depth, _DEPTH_MAX), 0, -1):
        if not 2 <= number < pages.size // pages.page_bytes:
            return None
        page = pages.read(number, pages.page_bytes)
        own, _, flags, lower, _ = PAGE.unpack_from(page)
        if own != number or flags != (BRANCH if depth > 1 else LEAF) or not PAGE.size + 2 <= lower <= len(page):
            return None
        (offset,) = _offsets(1).unpack_from(page, lower - 2)
        if offset > len(page) - NODE.size - NUMBER.size:
            return None
        low, high, _ = NODE.unpack_from(page, offset)
        if depth == 1:
            return int(NUMBER.unpack_from(page, offset + NODE.size)[0])
        number = low | high << 32
    return None


def _free(pages: PageFile, account: Account) -> dict[int, tuple[int, ...]]:
    """Read the records of free pages, each of which has their count and their numbers in falling order."""
    free = {}
    for key, value in _Walk(pages, account, pages.meta.free, "", is_free=True).walk().values:
        (transaction,) = NUMBER.unpack(key)
        count = int.from_bytes(value[: NUMBER.size], byteorder)
        if transaction > pages.meta.transaction or len(value) % NUMBER.size or len(value) != (count + 1) * NUMBER.size:
            raise StoreDamaged(
                pages.file,
                f"the record of pages that transaction {transaction} freed has {len(value)} bytes for {count}",
            )
        ids = _numbers(count).unpack_from(value, NUMBER.size)
        if any(map(le, ids, islice(ids, 1, None))):
            raise StoreDamaged(pages.file, f"the pages that transaction {transaction} freed are out of order")
        free[transaction] = ids
    return free


class _Walk:
    """Goes through one tree, in order of its keys.

    Args:
        pages: of the file.
        account: of all trees.
        tree: what is noted of it.
        name: of the database; empty for those of LMDB itself.
        head: who wants to see the rows.
        keys: who wants to see the keys.
        is_free: it is the tree of free pages.
        is_main: it is the tree of databases.
    """

    def __init__(
        self,
        pages: PageFile,
        account: Account,
        tree: Tree,
        name: str,
        head: Head | None = None,
        keys: Keys | None = None,
        is_free: bool = False,
        is_main: bool = False,
    ) -> None:
        self._pages = pages
        self._account = account
        self._tree = tree
        self._name = name
        self._keys = keys
        self._is_free = is_free
        self._is_main = is_main
        self._found = _Found()
        self._head = head
        if is_free or is_main:
            self._head = lambda key, value: self._found.values.append((key, value))
        self._last: bytes | int = -1 if is_free else b""
        self._floor: bytes | int = self._last

    def walk(self) -> _Found:
        """Return what the tree consists of.

        Raises:
            StoreDamaged: it is not what LMDB writes, or not what is noted of it.
        """
        tree, found = self._tree, self._found
        if not (self._is_free or self._is_main) and (tree.pad or tree.flags):
            raise self._damaged(f"it is noted with flags {tree.flags:#x} and {tree.pad:#x}")
        if tree.root == NO_PAGE:
            depth = 0
        else:
            depth = tree.depth
            if not 1 <= depth <= _DEPTH_MAX:
                raise self._damaged(f"it is noted with a depth of {depth}")
            self._subtree(tree.root, depth)
            self._follow()
        noted = (tree.depth, tree.branch_pages, tree.leaf_pages, tree.overflow_pages, tree.entries)
        there = (depth, found.branch_pages, found.leaf_pages, found.overflow_pages, found.entries)
        if noted != there:
            raise self._damaged(
                f"its depth, branch, leaf and overflow pages and entries are noted as {noted}, and are {there}"
            )
        return found

    def _subtree(self, number: int, depth: int) -> None:
        self._account.claim(number, 1, self._name)
        page = self._pages.read(number, self._pages.page_bytes)
        own, _, flags, lower, upper = PAGE.unpack_from(page)
        if own != number or flags != (BRANCH if depth > 1 else LEAF):
            raise self._damaged(f"page {number} says it is page {own} with flags {flags:#x}")
        count, odd = divmod(lower - PAGE.size, 2)
        if odd or count < 1 or not lower <= upper < len(page):
            raise self._damaged(f"page {number} has bounds {lower} and {upper}")
        offsets = _offsets(count).unpack_from(page, PAGE.size)
        if min(offsets) != upper or max(offsets) > len(page) - NODE.size:
            raise self._damaged(f"page {number} has nodes at {min(offsets)} to {max(offsets)}")
        if depth > 1:
            self._branch(number, page, offsets, depth)
        else:
            self._leaf(number, page, offsets)

    def _branch(self, number: int, page: bytes, offsets: tuple[int, ...], depth: int) -> None:
        self._found.branch_pages += 1
        nodes = []
        for offset in offsets:
            low, high, size = NODE.unpack_from(page, offset)
            nodes.append((low | high << 32, page[offset + NODE.size : offset + NODE.size + size]))
        self._check_tiles(
            number,
            page,
            offsets,
            [offset + NODE.size + len(key) for offset, (_, key) in zip(offsets, nodes, strict=True)],
        )
        for place, (child, key) in enumerate(nodes):
            if place:
                separator = self._ordered(key)
                if separator <= self._last:  # type: ignore[operator]  # both are numbers, or both are bytes
                    raise self._damaged(f"page {number} has its keys out of order at {key.hex()}")
                self._floor = separator
            self._subtree(child, depth - 1)

    def _leaf(self, number: int, page: bytes, offsets: tuple[int, ...]) -> None:
        """Check a leaf, in one loop written out: there may be millions of nodes."""
        last, end_max = self._last, len(page)
        keys, ends, heads = [], [], []
        big = self._found.big
        is_free, expected = self._is_free, _SUBTREE if self._is_main else 0
        is_seen, unpack = self._head is not None, NODE.unpack_from
        for offset in offsets:
            size, flags, key_size = unpack(page, offset)
            begin = offset + 8 + key_size
            raw = page[offset + 8 : begin]
            key = self._ordered(raw) if is_free else raw
            if key <= last:  # type: ignore[operator]
                raise self._damaged(f"page {number} has its keys out of order at {raw.hex()}")
            last = key
            keys.append(key)
            end = begin + size
            if flags != expected:
                end = begin + NUMBER.size
                if flags != _BIG or end > end_max:
                    raise self._damaged(f"page {number} has a node with flags {flags:#x} at key {raw.hex()}")
                big.append((*NUMBER.unpack_from(page, begin), size, raw))
            elif is_seen:
                heads.append((raw, begin, end))
            ends.append(end + (end & 1))
        self._check_tiles(number, page, offsets, ends)
        if keys[0] < self._floor:  # type: ignore[operator]
            raise self._damaged(f"page {number} begins with a key below its place")
        self._last = last
        self._found.leaf_pages += 1
        self._found.entries += len(keys)
        if self._head is not None:
            for raw, begin, end in heads:
                self._head(raw, page[begin:end])
        if self._keys is not None:
            self._keys(keys)  # type: ignore[arg-type]

    def _check_tiles(self, number: int, page: bytes, offsets: tuple[int, ...], ends: list[int]) -> None:
        """Check that nodes fill the page from the first to its end: each ends where another begins."""
        starts = sorted(offsets)
        starts.append(len(page))
        del starts[0]
        if starts != sorted([end + (end & 1) for end in ends]):
            raise self._damaged(f"page {number} has nodes that overlap, or gaps between them")

    def _follow(self) -> None:
        """Check values on overflow pages by their first bytes, in the order of the pages."""
        pages, head = self._pages, self._head
        size_min = OVERFLOW_PAGE.size + HEAD_BYTES
        big = sorted(self._found.big)
        for start in range(0, len(big), _AHEAD):
            portion = big[start : start + _AHEAD]
            for page, _, _ in portion:
                self._account.claim(page, 1, self._name)
            pages.expect([page for page, _, _ in portion])
            for page, size, key in portion:
                needed = (OVERFLOW_PAGE.size - 1 + size) // pages.page_bytes + 1
                first = pages.read(page, size_min)
                own, _, flags, count = OVERFLOW_PAGE.unpack_from(first)
                if own != page or flags != OVERFLOW or count < needed:
                    raise self._damaged(
                        f"page {page}, with the value of key {key.hex()}, says it is page {own} with flags {flags:#x} "
                        f"and the first of {count}, not of {needed}"
                    )
                if count > 1:
                    self._account.claim(page + 1, count - 1, self._name)
                self._found.overflow_pages += count
                if self._is_free:
                    first = pages.read(page, OVERFLOW_PAGE.size + size)
                if head is not None:
                    head(key, first[OVERFLOW_PAGE.size : OVERFLOW_PAGE.size + size])

    def _ordered(self, key: bytes) -> bytes | int:
        """A key as it is compared."""
        if not self._is_free:
            return key
        if len(key) != NUMBER.size:
            raise self._damaged(f"a key has {len(key)} bytes")
        return int(NUMBER.unpack(key)[0])

    def _damaged(self, what: str) -> StoreDamaged:
        if self._name:
            return StoreDamaged(self._pages.file, what, self._name)
        return StoreDamaged(
            self._pages.file, f"in its list of {'free pages' if self._is_free else 'databases'}, {what}"
        )


@cache
def _offsets(count: int) -> Struct:
    return Struct(f"={count}H")


def _numbers(count: int) -> Struct:
    return Struct(f"={count}Q")
