"""Documents as tests see them: headings, links, and code that can be run.

A comment on the line above a block of code says what a test must know of it, and on a line of its own near the top what
it must know of the whole page:

    <!-- not run: why -->                   above a block: it is not run
    <!-- run with: Spark -->                above a block: tests/spark/test_documents.py runs it, with a session
    <!-- given: certificates, ... -->       the page's examples find these files in their folder
    <!-- examples: in order, on one broker -->  else each has a broker of its own
    <!-- examples: with Spark -->           all are run with a session `spark`, by tests/spark/test_documents.py
"""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent

RUN = ("python", "sh", "console")
SHOWN = ("text", "json", "ini", "yaml")
"""Languages that nothing can run; whatever else a block is written in, a test has to know it."""

FENCE = re.compile(
    r"^(?:<!-- (?:not run: (?P<reason>[^\n]+?)|run with: (?P<tool>\w+)) -->\n)?"
    r"```(?P<language>\w*)\n(?P<code>.*?)^```$",
    re.M | re.S,
)
MARK = re.compile(r"^<!-- (\w+): (.*?) -->$", re.M)


@dataclass(frozen=True)
class Block:
    """A block of code.

    Attributes:
        language: what stands behind the three backquotes.
        code: what stands between them.
        line: of the document, where it begins.
        reason: why it is not run; None when it is.
        tool: what runs it, where a shell and Python alone do not; "Spark" or None.
    """

    language: str
    code: str
    line: int
    reason: str | None
    tool: str | None

    @property
    def runs(self) -> bool:
        """Whether the tests of this folder run it."""
        return self.language in RUN and self.reason is None and self.tool is None


class Document:
    """A page."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = str(path.relative_to(ROOT))
        self.text = path.read_text()
        self.blocks = [
            Block(
                found["language"],
                found["code"],
                self.text.count("\n", 0, found.start("code")),
                found["reason"],
                found["tool"],
            )
            for found in FENCE.finditer(self.text)
        ]
        self.prose = FENCE.sub("", self.text)
        self.marks = dict(MARK.findall(self.prose))

    @property
    def is_in_order(self) -> bool:
        """Whether its examples build on one another."""
        return self.marks.get("examples") == "in order, on one broker"

    @property
    def needs_spark(self) -> bool:
        """Whether its examples are run with a session of Spark."""
        return self.marks.get("examples") == "with Spark"

    @property
    def given(self) -> list[str]:
        """The files its examples find."""
        return [name.strip() for name in self.marks.get("given", "").split(",") if name.strip()]

    def section(self, title: str) -> str:
        """What stands under a heading, up to the next heading; one # alone begins a comment in code, too."""
        found = re.search(rf"^(#+) {re.escape(title)}\n(.*?)(?=^#{{2,6}} |\Z)", self.text, re.M | re.S)
        assert found is not None, f"{self.name} has no section '{title}'"
        return found[2]

    def anchors(self) -> set[str]:
        """What links may name behind `#`, as GitHub makes it of headings."""
        found: list[str] = []
        for title in re.findall(r"^#{1,6} (.+)$", self.prose, re.M):
            plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).lower()
            name = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
            found.append(f"{name}-{found.count(name)}" if name in found else name)
        return set(found)

    def links(self) -> list[str]:
        """All targets of links and pictures, as written."""
        targets = re.findall(r"\]\(([^)\s]+)\)", self.prose)
        for srcset in re.findall(r'(?:href|src|srcset)="([^"]+)"', self.prose):
            targets.append(srcset)
        return targets


def documents() -> list[Document]:
    """Every page of the repository."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:
        names = [str(path.relative_to(ROOT)) for place in ("docs", "deploy") for path in (ROOT / place).rglob("*.md")]
        names += ["README.md", "CHANGELOG.md"]
    else:
        names = [name for name in listed.stdout.split("\0") if name]
    return [Document(ROOT / name) for name in sorted(names) if (ROOT / name).is_file()]
