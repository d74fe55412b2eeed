"""Choosing rows and columns of a list."""

import click
import pytest

from shardmq.cmd.terminal.rows import Column, Condition, Row, RowChoice, extras, features, names, numbers, plain

COLUMNS = (*names("name"), *numbers("ready"), features("durable"), *extras("shard"))
ROWS: list[Row] = [
    {"name": "orders", "ready": 7, "durable": True, "shard": 0, "bytes": 2_000_000},
    {"name": "mail", "ready": None, "durable": False, "shard": 1, "bytes": 10},
    {"name": "orders.late", "ready": 1200, "durable": True, "shard": 2, "bytes": 500},
]


def chosen(*conditions: str, sort: tuple[str, ...] = ()) -> list[str]:
    choice = RowChoice(sort, tuple(map(Condition.read, conditions)))
    return [row["name"] for row in choice.rows(ROWS, COLUMNS)]


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ("name=orders*", ["orders", "orders.late"]),
        ("name!=orders*", ["mail"]),
        ("ready>7", ["orders.late"]),
        ("ready>=7", ["orders", "orders.late"]),
        ("ready<100", ["orders"]),
        ("features=durable", ["orders", "orders.late"]),
        ("durable=no", ["mail"]),
        ("bytes>1MB", ["orders"]),
        ("shard<=1", ["orders", "mail"]),
        ("shard>0.5", ["mail", "orders.late"]),
        ("shard<1.5", ["orders", "mail"]),
    ],
)
def test_conditions_choose_rows(condition: str, found: list[str]) -> None:
    assert chosen(condition) == found


def test_all_conditions_hold() -> None:
    assert chosen("name=orders*", "ready>7") == ["orders.late"]


@pytest.mark.parametrize("text", ["name", "=x", "", "ready>many"])
def test_what_is_no_condition_is_explained(text: str) -> None:
    with pytest.raises(click.BadParameter, match="write"):
        Condition.read(text)


def test_rows_are_sorted_by_numbers_and_texts_either_way() -> None:
    assert chosen(sort=("name",)) == ["mail", "orders", "orders.late"]
    assert chosen(sort=("-ready",)) == ["orders.late", "orders", "mail"]
    assert chosen(sort=("features", "-name")) == ["orders.late", "orders", "mail"]


def test_columns_are_those_named_in_that_order_else_all_that_are_no_extras() -> None:
    assert [column.name for column in RowChoice().shown(ROWS, COLUMNS)] == ["name", "ready", "features"]
    choice = RowChoice(columns=("shard", "bytes", "name"))
    assert [column.name for column in choice.shown(ROWS, COLUMNS)] == ["shard", "bytes", "name"]


def test_a_column_that_does_not_exist_is_an_error_with_a_guess() -> None:
    for choice in (RowChoice(sort=("redy",)), RowChoice(conditions=(Condition("redy", "=", "1"),))):
        with pytest.raises(click.BadParameter, match=r"no column 'redy'\. Did you mean 'ready'"):
            choice.rows([], COLUMNS)
    with pytest.raises(click.BadParameter, match="There are name, ready, features, shard"):
        RowChoice(columns=("colour",)).shown([], COLUMNS)


def test_people_see_separators_and_pipes_plain_values() -> None:
    column = Column("ready", is_number=True)
    assert column.shown({"ready": 1200}) == "1,200"
    assert plain(1200) == "1200"
    assert column.shown({"ready": None}) == ""
    assert plain({"x-max-length": 5, "lazy": True}) == "x-max-length=5, lazy=yes"
    assert plain("a\tb\nc") == "a\\tb\\nc"
