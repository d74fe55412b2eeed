"""The commands that pages tell to type on several hosts, with addresses and folders of a test in them."""

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.docs.document import ROOT, Document

PAGE = ROOT / "docs" / "operations" / "replicas.md"

typed: Final[set[str]] = set()
"""Lines of pages that this process has typed, as they stand there."""


def page_lines(page: Path, words: str) -> list[str]:
    """Lines of a page's examples that begin with some words."""
    blocks = [block.code for block in Document(page).blocks if block.tool == "Hosts"]
    return [line for code in blocks for line in code.splitlines() if f"{line} ".startswith(f"{words} ")]


def documented(words: str, changes: Mapping[str, str]) -> list[list[str]]:
    """The words of all commands `shardmq WORDS …` of the page, with some of them changed: the caller types them all."""
    lines = page_lines(PAGE, f"shardmq {words}")
    assert lines, f"{PAGE} has no `shardmq {words}`"
    typed.update(lines)
    said = words.split()
    changed = [[changes.get(word, word) for word in shlex.split(line)[1 + len(said) :]] for line in lines]
    return [[*said, *rest] for rest in changed]


def documented_join(changes: Mapping[str, str]) -> str:
    """The URL of etcd of the page, for one without TLS and users; tests/hosts/deployed.py has both."""
    text = PAGE.read_text()
    url = shlex.split(text.partition("export SHARDMQ_JOIN=")[2].splitlines()[0])[0]
    url = re.sub(r"^etcds://[^@]+@([^?]+)\?.*$", r"etcd://\1?insecure=true", url)
    for old, new in changes.items():
        url = url.replace(old, new)
    return url
