"""The pages of an LMDB file, read without LMDB: it has no checksums, and a damaged page may end the process.

Numbers are the machine's own; LMDB files do not travel between byte orders.

    page        number u64 | pad u16 | flags u16 | lower u16 | upper u16      of overflow pages, last: how many u32
    tree page   page | offsets of its nodes in order of their keys, u16 each, to `lower` | free | nodes, from `upper` on
    leaf node   data size u32 | flags u16 | key size u16 | key | data, or the number of its first overflow page u64
    branch node page number, low u32, high u16 | key size u16 | key; the first node's key means nothing
    tree        pad u32 | flags u16 | depth u16 | branch, leaf, overflow pages, entries, root u64 each
    meta page   page | magic u32 | version u32 | address u64 | map size u64 | tree of free pages | tree of databases
                | last page u64 | transaction u64      the first tree's pad is the size of pages
"""

import errno
import os
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from shardmq.errors import StoreDamaged, StoreRefused

BRANCH: Final = 1
LEAF: Final = 2
OVERFLOW: Final = 4
META: Final = 8
NO_PAGE: Final = (1 << 64) - 1

PAGE: Final = Struct("=QHHHH")
OVERFLOW_PAGE: Final = Struct("=QHHI")
NODE: Final = Struct("=IHH")
NUMBER: Final = Struct("=Q")
TREE: Final = Struct("=IHHQQQQQ")

_META_PAGE: Final = Struct(f"=10xH4xII16x{TREE.size}s{TREE.size}sQQ")
_MAGIC: Final = 0xBEEFC0DE
_VERSION: Final = 1
_PAGE_BYTES: Final = frozenset(1 << power for power in range(9, 16))
_FREE_FLAGS: Final = frozenset({0x08, 0x4008})
"""Of the tree of free pages: keys are numbers; and the file was made by itself, without a folder."""


class Tree(NamedTuple):
    """What a meta page, or a node of the main tree, says of a tree."""

    pad: int
    flags: int
    depth: int
    branch_pages: int
    leaf_pages: int
    overflow_pages: int
    entries: int
    root: int


class Meta(NamedTuple):
    """What the newer meta page says.

    Attributes:
        free: the tree of free pages.
        main: the tree of databases.
        last_page: number of the last page.
        transaction: number of the last transaction.
    """

    free: Tree
    main: Tree
    last_page: int
    transaction: int


class PageFile:
    """An LMDB file, open for reading.

    Args:
        file: where it is.

    Attributes:
        meta: the meta page of the last transaction.
        older: the meta page of the one before.
        page_bytes: size of a page.
        size: of the file.

    Raises:
        StoreRefused: it is no LMDB file, or cut short.
        StoreDamaged: its meta pages are damaged.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self._descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.size = os.fstat(self._descriptor).st_size
            self.page_bytes, self.older, self.meta = self._metas()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close it."""
        os.close(self._descriptor)

    def read(self, page: int, size: int) -> bytes:
        """Read the first bytes of a page, or of some pages in a row.

        Raises:
            StoreRefused: the file ends before them, or they cannot be read; `StoreDamaged` where the disk cannot.
        """
        content = self._at(page * self.page_bytes, size)
        if len(content) != size:
            raise self.cut_short()
        return content

    def _at(self, position: int, size: int) -> bytes:
        try:
            return os.pread(self._descriptor, size, position)
        except OSError as fault:
            if fault.errno == errno.EIO:
                raise StoreDamaged(self.file, f"the disk cannot read it at byte {position}") from fault
            raise StoreRefused(
                f"{self.file} cannot be read at byte {position}: {fault.strerror}; restore it from a copy"
            ) from fault

    def expect(self, pages: list[int]) -> None:
        """Ask the disk for pages whose first bytes are about to be read."""
        for page in pages:
            os.posix_fadvise(self._descriptor, page * self.page_bytes, self.page_bytes, os.POSIX_FADV_WILLNEED)

    def cut_short(self) -> StoreRefused:
        """Return the refusal of a file that ends too early."""
        needed = (self.meta.last_page + 1) * self.page_bytes
        return StoreRefused(f"{self.file} is cut short: {self.size} of {needed} bytes; restore it from a copy")

    def _metas(self) -> tuple[int, Meta, Meta]:
        """The size of pages, the older meta page and the newer one.

        Transaction N is noted in meta page N & 1. So two numbers that do not follow one another, or lie in each other's
        place, are damaged: LMDB would take the older state for the newer one.
        """
        first = self._at(0, _META_PAGE.size)
        if len(first) < _META_PAGE.size:
            raise StoreRefused(f"{self.file} is cut short: {self.size} bytes; restore it from a copy")
        if _META_PAGE.unpack(first)[1] != _MAGIC:
            raise StoreRefused(f"{self.file} is no LMDB file; move it away, or choose another data directory")
        page_bytes, older = self._meta(0, first)
        second = self._at(page_bytes, _META_PAGE.size)
        if len(second) < _META_PAGE.size:
            raise StoreRefused(f"{self.file} is cut short: {self.size} bytes; restore it from a copy")
        others_bytes, newer = self._meta(1, second)
        if others_bytes != page_bytes:
            raise StoreDamaged(self.file, f"its meta pages have page sizes {page_bytes} and {others_bytes}")
        if older.transaction > newer.transaction:
            older, newer = newer, older
        is_new = older.transaction == newer.transaction == 0 and newer.main.root == NO_PAGE
        if not is_new and (newer.transaction - older.transaction != 1 or newer != self._of(newer, first, second)):
            raise StoreDamaged(
                self.file,
                f"its meta pages are of transactions {older.transaction} and {newer.transaction}, which cannot be",
            )
        return page_bytes, older, newer

    def _of(self, meta: Meta, first: bytes, second: bytes) -> Meta:
        """What the meta page says that a transaction belongs in."""
        return self._meta(1, second)[1] if meta.transaction & 1 else self._meta(0, first)[1]

    def _meta(self, place: int, content: bytes) -> tuple[int, Meta]:
        flags, magic, version, free, main, last_page, transaction = _META_PAGE.unpack(content)
        meta = Meta(Tree._make(TREE.unpack(free)), Tree._make(TREE.unpack(main)), last_page, transaction)
        if not flags & META or magic != _MAGIC or version != _VERSION:
            raise StoreDamaged(
                self.file, f"meta page {place} is none: flags {flags}, magic {magic:#x}, version {version}"
            )
        if meta.free.pad not in _PAGE_BYTES:
            raise StoreDamaged(self.file, f"meta page {place} says that pages have {meta.free.pad} bytes")
        return meta.free.pad, meta


def check_noted(pages: PageFile) -> None:
    """Check what the newer meta page says of its two trees, apart from what a walk finds.

    Raises:
        StoreDamaged: it is not what LMDB writes.
    """
    meta = pages.meta
    if meta.free.flags not in _FREE_FLAGS or meta.main.flags or meta.main.pad:
        raise StoreDamaged(
            pages.file, f"its meta page has flags {meta.free.flags:#x}, {meta.main.flags:#x}, {meta.main.pad:#x}"
        )
    if not 1 <= meta.last_page < NO_PAGE // pages.page_bytes:
        raise StoreDamaged(pages.file, f"its meta page says that its last page is {meta.last_page}")
