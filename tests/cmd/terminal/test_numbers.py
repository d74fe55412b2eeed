"""Numbers on command lines: what is none of them is told with what may be given."""

from collections.abc import Iterator

import click
import pytest

from shardmq.cmd.main import cli
from shardmq.cmd.terminal.numbers import Number, WholeNumber


@pytest.mark.parametrize(
    ("kind", "given", "text"),
    [
        (WholeNumber(1, 500), "x", "'x' is not a whole number from 1 to 500"),
        (WholeNumber(1), "0", "'0' is not a whole number from 1 on"),
        (WholeNumber(max=10_000), "2e4", "'2e4' is not a whole number up to 10,000"),
        (WholeNumber(), "1.5", "'1.5' is not a whole number"),
        (Number(0, min_open=True), "0", "'0' is not a number above 0"),
        (Number(0.1, 60), "nan", "'nan' is not a number from 0.1 to 60"),
        (Number(0, 1, min_open=True, max_open=True), "1", "'1' is not a number above 0 to below 1"),
        (Number(), "a", "'a' is not a number"),
    ],
)
def test_what_is_no_such_number_is_refused_with_what_may_be_given(
    kind: WholeNumber | Number, given: str, text: str
) -> None:
    with pytest.raises(click.BadParameter) as refused:
        kind.convert(given, None, None)
    assert refused.value.message == text


def test_numbers_are_read() -> None:
    assert WholeNumber(1, 5).convert("5", None, None) == 5
    assert Number(0.5).convert("0.5", None, None) == 0.5


def commands(group: click.Command) -> Iterator[click.Command]:
    yield group
    if isinstance(group, click.Group):
        for name in group.list_commands(click.Context(group)):
            command = group.get_command(click.Context(group), name)
            assert command is not None
            yield from commands(command)


def test_all_commands_read_their_numbers_so() -> None:
    parameters = [each for command in commands(cli) for each in command.params]
    numbers = (click.types.IntParamType, click.types.FloatParamType)
    found = [each for each in parameters if isinstance(each.type, numbers)]
    assert len(found) > 50
    assert not [each.name for each in found if not isinstance(each.type, WholeNumber | Number)]
