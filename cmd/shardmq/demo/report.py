"""What the demo prints in the end: tables, sentences, JSON."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from shardmq.cmd.terminal.rows import Column, Row, names, numbers
from shardmq.cmd.terminal.tables import Table

if TYPE_CHECKING:
    from shardmq.cmd.demo.flights import Tally
    from shardmq.cmd.demo.topic import Outcome

FIRST_ACT: Final = "Act 1: a topic exchange and six queues"
SECOND_ACT: Final = "Act 2: a topic, three groups and Spark"

RIGHT: Final = Column(
    "right",
    text=lambda is_right: "✓" if is_right else "✗",
    style=lambda row: "green" if row["right"] else "red",
)
QUEUE_COLUMNS: Final = (
    *names("queue", "binding key"),
    *numbers("pandas", "shardmq"),
    Column("in order"),
    RIGHT,
)
GROUP_COLUMNS: Final = (*names("carrier"), *numbers("pandas", "ordered", "shared", "read", "again"))


def print_queues(tallies: "Sequence[Tally]") -> None:
    """Print the counts of the first act for people."""
    from shardmq.cmd.demo.flights import QUEUES

    rows = [
        {
            "queue": tally.queue,
            "binding key": QUEUES[tally.queue][0],
            "pandas": tally.expected,
            "shardmq": tally.count,
            "in order": tally.in_order,
            "right": tally.is_right,
        }
        for tally in tallies
    ]
    Table("flights by queue, as pandas counts them and as they arrived", QUEUE_COLUMNS, rows).print()


def print_carriers(outcome: "Outcome") -> None:
    """Print the counts of the second act for people."""
    spark = numbers("spark") if "spark" in outcome.counts else ()
    rows: list[Row] = [_carrier(outcome, carrier) for carrier in outcome.carriers]
    title = "flights by carrier, as pandas counts them and as three groups and Spark do"
    Table(title if spark else title.replace(" and Spark", ""), (*GROUP_COLUMNS, *spark, RIGHT), rows).print()


def _carrier(outcome: "Outcome", carrier: str) -> Row:
    expected = outcome.expected.get(carrier, 0)
    counted = {reader: counts.get(carrier, 0) for reader, counts in outcome.counts.items()}
    right = all(count == expected for count in counted.values())
    return {"carrier": carrier, "pandas": expected, **counted, "right": right}


def sentences(tallies: "Sequence[Tally]", outcome: "Outcome", seconds: float) -> list[str]:
    """What was shown, for people."""
    wrong = [tally.queue for tally in tallies if not tally.is_right]
    said = ["All flights arrived in their queues, in order: what was confirmed was on disk."]
    if wrong:
        said = [f"Act 1: flights are missing or out of order in {', '.join(wrong)}."]
    if not outcome.is_right:
        said += [f"Act 2: {fault}." for fault in outcome.faults]
    else:
        said += [
            f"{outcome.member} was killed, and others took its partitions: none counted twice.",
            f"{outcome.shard} was killed: {outcome.repeated:,} flights came again, known by their offsets.",
            "The group that was reset read the same again, each carrier in order.",
        ]
    if outcome.without_spark:
        said.append(f"Without Spark: {outcome.without_spark}.")
    elif outcome.is_right:
        said.append("Spark counted half, went on from its checkpoint, and has the same.")
    return [*said, f"That took {seconds:.1f} s."]


def as_rows(tallies: "Sequence[Tally]", outcome: "Outcome") -> dict[str, Any]:
    """What was shown, for machines."""
    return {
        "queues": {
            tally.queue: {"expected": tally.expected, "count": tally.count, "in_order": tally.in_order}
            for tally in tallies
        },
        "topic": {
            "expected": outcome.expected,
            **outcome.counts,
            "in_order": outcome.in_order,
            "lag": outcome.lag,
            "killed": [outcome.member, outcome.shard],
            "repeated": outcome.repeated,
            "without_spark": outcome.without_spark or None,
        },
    }
