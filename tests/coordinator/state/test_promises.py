"""What is answered while too few replicas are in sync, and what is not."""

from typing import get_args

import pytest

from shardmq.coordinator.state.pending_command import PendingCommand, names_in
from shardmq.coordinator.state.promises import _PROMISING, Promises
from shardmq.errors import Unavailable
from shardmq.topology import commands
from shardmq.topology.changes import Change, ExchangeAdded
from shardmq.topology.commands import Bind, Command, DeclareExchange, DeleteExchange, PutVhost
from shardmq.topology.entities import Exchange

REMOVING = ("Abort", "Delete", "Unbind")
UNWRITTEN = {commands.CloseConnection, commands.ReportShovels, commands.SetTracing, commands.SetWatermarks}
REFUSAL = "too few replicas of coordinator are in sync"
LAST, NEW = DeclareExchange("/", "last", "fanout", True, {}), DeclareExchange("/", "new", "fanout", True, {})
ADDED = ExchangeAdded(Exchange("/", "new", "fanout", True))
OLD = DeclareExchange("/", "old", "fanout", True, {})


def pending(command: Command) -> PendingCommand:
    return PendingCommand(None, command, names_in(command), 0.0)


class Log:
    """A group's log up to 10, of which all is on all disks, or nobody knows."""

    def __init__(self, *, is_sure: bool = True) -> None:
        self.index = 10
        self.promises = Promises(lambda: self.index, is_sure)
        self.promises.look("", 10 if is_sure else 9)

    def write(self, *commands: Command) -> None:
        for command in commands:
            self.promises.decided(pending(command), [ADDED])
        self.index += 1
        self.promises.written()

    def answers(self, command: Command, *changes: Change) -> bool:
        try:
            self.promises.check(command, changes)
        except Unavailable as refused:
            assert refused.text == REFUSAL
            return False
        return True


def test_what_was_under_way_is_not_found_done_while_too_few_are_in_sync() -> None:
    log = Log()
    log.write(OLD)
    log.promises.look("", 11)
    log.write(LAST)
    assert not log.promises.look(REFUSAL, 12), "all of the set have it, which has become too small"
    assert log.promises.is_in_doubt
    assert log.answers(OLD)
    assert not log.answers(LAST)
    assert not log.answers(NEW, ADDED)
    assert log.answers(DeleteExchange("/", "last"))
    assert log.promises.look("", 12), "who asks for itself may be told"
    assert log.answers(LAST)
    assert not log.promises.is_in_doubt


def test_who_leads_with_what_may_not_be_released_finds_nothing_done_while_too_few_are_in_sync() -> None:
    log = Log(is_sure=False)
    log.promises.look(REFUSAL, 10)
    assert not log.answers(OLD)
    log.promises.look("", 10)
    log.promises.look(REFUSAL, 10)
    assert log.answers(OLD), "enough had it before they became too few"


@pytest.mark.parametrize("written", [PutVhost("v", "", ()), Bind("/", "x", "y", "", {}, True)])
def test_what_names_nothing_puts_all_in_doubt(written: Command) -> None:
    log = Log()
    log.write(written)
    log.promises.look(REFUSAL, 11)
    assert not log.answers(OLD)
    assert not log.answers(written)


def test_what_removes_puts_nothing_in_doubt() -> None:
    log = Log()
    log.write(DeleteExchange("/", "last"))
    log.promises.look(REFUSAL, 11)
    assert not log.promises.is_in_doubt
    assert log.answers(PutVhost("v", "", ()))


def test_every_command_promises_something_or_removes_or_is_not_written() -> None:
    removing = {command for command in get_args(Command) if command.__name__.startswith(REMOVING)}
    assert {*_PROMISING} == {*get_args(Command)} - removing - UNWRITTEN


def test_one_host_promises_what_it_has() -> None:
    promises = Promises()
    promises.decided(pending(LAST), [ADDED])
    promises.written()
    promises.check(LAST)
    assert not promises.is_in_doubt
