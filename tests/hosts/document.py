"""The commands that docs/operations/replicas.md tells to type, with addresses and folders of a test in them."""

import re
import shlex
from collections.abc import Mapping

from tests.docs.document import ROOT, Document

PAGE = ROOT / "docs" / "operations" / "replicas.md"


def documented(noun: str, changes: Mapping[str, str]) -> list[list[str]]:
    """The words of all commands `shardmq NOUN …` of the page, with some of them changed."""
    blocks = [block.code for block in Document(PAGE).blocks if block.tool == "Hosts"]
    lines = [line for code in blocks for line in code.splitlines() if line.startswith(f"shardmq {noun} ")]
    assert lines, f"{PAGE} has no `shardmq {noun}`"
    words = [shlex.split(line)[2:] for line in lines]
    return [[noun, *(changes.get(word, word) for word in line)] for line in words]


def documented_join(changes: Mapping[str, str]) -> str:
    """The URL of etcd of the page, for one without TLS and users; tests/hosts/deployed.py has both."""
    text = PAGE.read_text()
    url = shlex.split(text.partition("export SHARDMQ_JOIN=")[2].splitlines()[0])[0]
    url = re.sub(r"^etcds://[^@]+@([^?]+)\?.*$", r"etcd://\1?insecure=true", url)
    for old, new in changes.items():
        url = url.replace(old, new)
    return url
