"""Pages for users of other brokers: every line of their tables is shown."""

import re

from tests.docs.document import ROOT, Document

ROCKETMQ = Document(ROOT / "docs/guide/from-rocketmq.md")


def test_the_program_shows_every_line_of_the_table() -> None:
    rows = re.findall(r"^\| (.+?) \| ", ROCKETMQ.prose, re.M)
    assert rows[0] == "there"
    terms = [row.partition(",")[0].replace("`", "") for row in rows[1:]]
    assert len(terms) > 20
    (program,) = [block.code for block in ROCKETMQ.blocks if block.language == "python"]
    comments = " ".join(re.findall(r"# (.+)$", program, re.M))
    assert [term for term in terms if term not in comments] == []
