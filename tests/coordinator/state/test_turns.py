"""Commands that hold names go one after the other where they have one in common; none waits for ever."""

from hypothesis import given
from hypothesis import strategies as st

from shardmq.coordinator.state.pending_command import PendingCommand
from shardmq.coordinator.state.turns import Turns
from shardmq.topology.commands import CloseConnection

names = st.lists(st.sampled_from("abcde"), max_size=4, unique=True)


def pending(held: list[str]) -> PendingCommand:
    return PendingCommand(None, CloseConnection("", "c", ""), [("queue", "/", name) for name in held], 0.0)


@given(st.lists(st.tuples(names, st.integers(0, 3)), max_size=30), st.data())
def test_turns_come_in_order_and_all_get_theirs(commands: list[tuple[list[str], int]], data: st.DataObject) -> None:
    turns = Turns()
    waiting: list[tuple[PendingCommand, set[str]]] = []
    running: dict[int, set[str]] = {}

    def begin(command: PendingCommand, held: set[str]) -> None:
        assert not any(held & others for others in running.values())
        running[id(command)] = held

    def end(command: PendingCommand) -> None:
        running.pop(id(command), None)
        waiting[:] = [each for each in waiting if each[0] is not command]
        for ready in turns.leave(command):
            (held,) = [held for other, held in waiting if other is ready]
            assert id(ready) not in running
            begin(ready, held)

    for held, ends in commands:
        command = pending(held)
        earlier = set().union(*[others for _, others in waiting])
        is_first = turns.enter(command)
        assert is_first == (not earlier & set(held))
        waiting.append((command, set(held)))
        if is_first:
            begin(command, set(held))
        for _ in range(min(ends, len(waiting))):  # those that wait may give up, too
            end(data.draw(st.sampled_from([each for each, _ in waiting])))
    while waiting:
        end(next(each for each, _ in waiting if id(each) in running))
