"""Templates: columns between braces."""

import pytest

from shardmq.errors import InvalidRequest
from shardmq.spark.jobs.templates import parse


@pytest.mark.parametrize(
    ("template", "pieces"),
    [
        ("", []),
        ("fixed", ["fixed"]),
        ("{carrier}.{origin}", [("carrier",), ".", ("origin",)]),
        ("a {{brace}} and { spaced }", ["a {brace} and ", ("spaced",)]),
        ("{address.city}", [("address.city",)]),
    ],
)
def test_braces_hold_columns_and_doubled_ones_are_braces(template: str, pieces: list[object]) -> None:
    assert parse(template) == pieces


@pytest.mark.parametrize("template", ["{", "}", "{}", "a{b", "{a}}", "{{a}"])
def test_a_brace_alone_is_refused(template: str) -> None:
    with pytest.raises(InvalidRequest, match="a brace is doubled"):
        parse(template)
