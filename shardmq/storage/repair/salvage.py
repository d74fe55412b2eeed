"""Rows of an LMDB file whose structure is damaged: all that can still be reached from its newer meta page.

LMDB itself would end the process, or follow a page number to anywhere. Here a page that is not what its place says is
left out, with what only it leads to. Whether a row is what was written is for its checksum to say.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct
from struct import error as StructError
from typing import Final

from shardmq.errors import StoreRefused
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
)

_BIG: Final = 1
_SUBTREE: Final = 2
_OFFSET: Final = Struct("=H")

Node = tuple[int, bytes, bytes]
"""Flags, key, and the data; of a large value its page and size."""


@dataclass(slots=True)
class Salvage:
    """How much of a damaged file could be reached.

    Attributes:
        rows: how many rows of each database were reached.
        expected: how many each is said to have.
        pages: numbers of pages that are not what their place says.
    """

    rows: dict[str, int] = field(default_factory=dict)
    expected: dict[str, int] = field(default_factory=dict)
    pages: list[int] = field(default_factory=list)


class SalvagedFile:
    """The rows of a damaged file that can be reached.

    Args:
        file: LMDB's.

    Attributes:
        found: what was reached so far.

    Raises:
        StoreRefused: its meta pages cannot be trusted: nothing can be reached.
    """

    def __init__(self, file: Path) -> None:
        self._pages = PageFile(file)
        self.found = Salvage()
        self._seen: set[int] = set()
        self._trees: dict[str, Tree] = {}
        for flags, key, data in self._nodes(self._pages.meta.main.root):
            if flags & _SUBTREE and len(data) == TREE.size:
                self._trees[key.decode(errors="replace")] = Tree._make(TREE.unpack(data))

    def close(self) -> None:
        """Close the file."""
        self._pages.close()

    def rows(self, database: str) -> Iterator[tuple[bytes, bytes]]:
        """The rows of a database that can be reached, in no order that is certain. Once for each."""
        tree = self._trees.get(database)
        self.found.expected[database] = tree.entries if tree is not None else 0
        self.found.rows[database] = 0
        for flags, key, data in self._nodes(tree.root if tree is not None else NO_PAGE):
            value = self._large(data) if flags & _BIG else data
            if value is not None:
                self.found.rows[database] += 1
                yield key, value

    def _nodes(self, root: int) -> Iterator[Node]:
        """The nodes of all leaves below a page."""
        waiting = [root]
        while waiting:
            page = waiting.pop()
            if page == NO_PAGE:
                continue
            content = self._page(page)
            if content is None:
                self.found.pages.append(page)
                continue
            kind = PAGE.unpack_from(content)[2]
            if kind & BRANCH:
                waiting += reversed(list(self._children(content)))
            else:
                yield from self._leaves(content)

    def _page(self, page: int) -> bytes | None:
        """A page of a tree, if it is one and was not met before."""
        if page in self._seen or not 2 <= page <= self._pages.meta.last_page:
            return None
        self._seen.add(page)
        try:
            content = self._pages.read(page, self._pages.page_bytes)
        except StoreRefused:
            return None
        number, _, flags, lower, upper = PAGE.unpack_from(content)
        is_tree = flags & (BRANCH | LEAF) and not flags & OVERFLOW
        return content if number == page and is_tree and PAGE.size <= lower <= upper <= len(content) else None

    def _offsets(self, content: bytes) -> list[int]:
        lower = PAGE.unpack_from(content)[3]
        return [_OFFSET.unpack_from(content, place)[0] for place in range(PAGE.size, lower - 1, _OFFSET.size)]

    def _children(self, content: bytes) -> Iterator[int]:
        for offset in self._offsets(content):
            try:
                low, high, _ = NODE.unpack_from(content, offset)
            except StructError:
                continue
            yield low | high << 32

    def _leaves(self, content: bytes) -> Iterator[Node]:
        for offset in self._offsets(content):
            try:
                size, flags, key_size = NODE.unpack_from(content, offset)
            except StructError:
                continue
            start = offset + NODE.size + key_size
            length = NUMBER.size if flags & _BIG else size
            key, data = content[start - key_size : start], content[start : start + length]
            if len(key) == key_size and len(data) == length:
                yield flags, key, data + size.to_bytes(4, "big") if flags & _BIG else data

    def _large(self, data: bytes) -> bytes | None:
        """A value on pages of its own."""
        page, size = NUMBER.unpack_from(data)[0], int.from_bytes(data[NUMBER.size :], "big")
        if not 2 <= page <= self._pages.meta.last_page:
            return None
        try:
            content = self._pages.read(page, OVERFLOW_PAGE.size + size)
        except StoreRefused:
            return None
        number, _, flags, _ = OVERFLOW_PAGE.unpack_from(content)
        return content[OVERFLOW_PAGE.size :] if number == page and flags & OVERFLOW else None
