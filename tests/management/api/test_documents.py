"""The table of endpoints in the documents is that of the process."""

import re

from shardmq.management.api import ENDPOINTS
from tests.house.tree import ROOT

PAGE = ROOT / "docs/operations/http-api.md"


def test_every_endpoint_is_in_the_table_and_nothing_else() -> None:
    rows = re.findall(r"^\| `(/[^`]*)` \| ([A-Z ]+) \| (yes|empty|501) \|", PAGE.read_text(), re.MULTILINE)
    documented = {(method, path): state for path, methods, state in rows for method in methods.split()}
    there = {
        (endpoint.method, re.sub(r":[^}]*", "", endpoint.path)): endpoint.summary
        for endpoint in ENDPOINTS
        if endpoint.path != "/queues//"
    }
    assert documented.keys() == there.keys()
    absent = {place for place, summary in there.items() if summary.startswith("Not implemented")}
    assert {place for place, state in documented.items() if state == "501"} == absent
