"""The arithmetic of `bench compare`: turns, medians, goals; and its results in a file."""

import json
from pathlib import Path

import pytest

from shardmq.cmd.bench.compare.comparison import Comparison, Limits, enough, outcome
from shardmq.cmd.bench.compare.load import Contestant, Figures
from shardmq.cmd.bench.compare.record import machine, record
from shardmq.cmd.bench.compare.rows import ROWS, Figure, Goal

OURS = Contestant("shardmq", 1)
THEIRS = Contestant("RabbitMQ", 2)
RATE = "end_to_end_msgs_per_s"
SETTINGS = {"turns": 3, "brokers": ["shardmq 0.1.0", "RabbitMQ 3.10.8"]}
WHERE = {"kind": "machine", "cores": 2}


def turns(name: str, *numbers: float, cpu_us: float = 7.0) -> list[Figures]:
    return [{name: number, "cpu_us": cpu_us} for number in numbers]


def test_brokers_take_turns_and_who_is_first_alternates() -> None:
    course = Comparison({"both": {}, "alone": {}}, [OURS, THEIRS], Limits(2, 1, None, 1))
    steps = [(turn, name, who) for turn, name, who, _ in course.run()]
    assert len(steps) == course.steps == 12
    firsts = steps[::2]
    assert [(turn, name) for turn, name, _ in firsts] == [
        (turn, name) for turn in (0, 1, 2) for name in ("both", "alone")
    ]
    assert [who for _, _, who in firsts] == [THEIRS, OURS, OURS, THEIRS, THEIRS, OURS]
    assert all({first[2], second[2]} == {OURS, THEIRS} for first, second in zip(firsts, steps[1::2], strict=True))


def test_a_row_that_rabbitmq_has_not_is_measured_on_shardmq_alone() -> None:
    course = Comparison({"bulk-1": {}}, [OURS, THEIRS], Limits(1, 1, None, 1))
    assert [who for _, _, who, _ in course.run()] == [OURS, OURS]


@pytest.mark.parametrize(
    ("messages", "took", "wanted"), [(100, 1.0, 300), (20_000, 0.61, 98_000), (1, 10.0, 1), (10**6, 0.01, 5_000_000)]
)
def test_so_many_messages_are_sent_as_take_the_time(messages: int, took: float, wanted: int) -> None:
    assert enough(messages, took, 3.0) == wanted


def test_a_ratio_is_the_median_of_the_turns_ratios_and_the_worst_is_the_least() -> None:
    measured = {"both": [turns(RATE, 100, 300, 200), turns(RATE, 50, 50, 40, cpu_us=9.0)]}
    row = outcome("both", Figure(RATE, (Goal(6), Goal(2, every=True))), measured)
    assert (row.shardmq.median, row.shardmq.worst, row.shardmq.turns) == (200, 100, (100, 300, 200))
    assert row.rabbitmq is not None
    assert (row.rabbitmq.median, row.rabbitmq.worst) == (50, 40)
    assert row.ratio is not None
    assert (row.ratio.median, row.ratio.worst) == (5, 2)
    assert (row.shardmq_cpu_us, row.rabbitmq_cpu_us) == (7, 9)
    assert [(goal.text, goal.measured, goal.is_met) for goal in row.goals] == [
        ("≥ 6 x", 5, False),
        ("worst ≥ 2 x", 2, True),
    ]
    alone = outcome("both", Figure(RATE, (Goal(6),)), {"both": measured["both"][:1]})
    assert (alone.rabbitmq, alone.ratio, alone.goals[0].is_met) == (None, None, None)


def test_of_times_the_worst_is_the_greatest_and_goals_are_bounds_from_above() -> None:
    measured = {"latency-10000": [turns("p99_ms", 4, 30, 5), turns("p99_ms", 10, 10, 10)]}
    row = outcome("latency-10000", Figure("p99_ms", (Goal(0.5), Goal(20, of="", every=True))), measured)
    assert (row.shardmq.worst, row.unit) == (30, "ms")
    assert row.ratio is not None
    assert (row.ratio.median, row.ratio.worst) == (0.5, 3)
    assert [(goal.text, goal.is_met) for goal in row.goals] == [("≤ 0.5 x", True), ("worst ≤ 20", False)]


def test_a_goal_may_be_a_share_of_another_row() -> None:
    figure = Figure(RATE, (Goal(0.8, of="bulk-1"),))
    measured = {"bulk-1": [turns(RATE, 100, 120, 90)], "bulk-100": [turns(RATE, 90, 85, 70)]}
    (goal,) = outcome("bulk-100", figure, measured).goals
    assert (goal.text, goal.measured, goal.is_met) == ("≥ 0.8 x bulk-1", 0.85, True)
    (goal,) = outcome("bulk-100", figure, {"bulk-100": measured["bulk-100"]}).goals
    assert goal.is_met is None, "the other row was not measured"


def test_goals_name_rows_that_have_the_figure() -> None:
    for row in ROWS.values():
        for figure in row.figures:
            for goal in figure.goals:
                if goal.of in ROWS:
                    assert figure.name in [other.name for other in ROWS[goal.of].figures]


def test_a_result_has_all_rows_and_keeps_those_that_were_not_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "compare.json"
    for name, rate in (("both", 200.0), ("1-kb", 100.0)):
        measured = {name: [turns(RATE, rate), turns(RATE, 50.0)]}
        record(path, [outcome(name, ROWS[name].figures[0], measured)], SETTINGS, WHERE)
    record(path, [], {**SETTINGS, "brokers": SETTINGS["brokers"][:1]}, WHERE)  # --no-peers
    result = json.loads(path.read_text())
    rows = {row["id"]: row for row in result["rows"]}
    assert {row["row"] for row in result["rows"]} == set(ROWS)
    assert rows["both"]["shardmq"] == {"median": 200.0, "worst": 200.0, "turns": [200.0]}
    assert rows["1-kb"]["ratio"]["median"] == 2.0
    assert rows["both"]["goals"][0] == {"text": "≥ 6 x", "measured": 4.0, "is_met": False}
    assert (rows["alone.consume_msgs_per_s"]["shardmq"], rows["alone.consume_msgs_per_s"]["recorded"]) == (None, None)
    assert (result["versions"]["rabbitmq"], result["machine"]) == ("3.10.8", WHERE)
    for key in ("title", "recorded", "command", "settings", "peer_settings", "statistic", "kept"):
        assert result[key]


def test_a_machine_is_named(tmp_path: Path) -> None:
    where = machine(tmp_path)
    assert where["cores"] > 0
    assert where["memory_gib"] > 0
    assert where["processor"]
    assert where["file_system"]
