"""Commands of one connection: so many under way, the others in their order."""

from shardmq.bus.coordinator_link import Reply
from shardmq.gateway.links.command_pacing import UNDER_WAY_MAX, CommandPacing
from shardmq.topology.commands import Command, DeleteUser


def test_so_many_are_under_way_and_the_others_follow_in_their_order() -> None:
    sent: list[tuple[Command, Reply]] = []
    pace = CommandPacing(lambda command, reply, _user: sent.append((command, reply)), "guest")
    answered: list[object] = []
    for number in range(3 * UNDER_WAY_MAX):
        pace.perform(DeleteUser("", str(number)), answered.append)
    assert len(sent) == UNDER_WAY_MAX
    for done in range(3 * UNDER_WAY_MAX):
        assert len(sent) == min(done + UNDER_WAY_MAX, 3 * UNDER_WAY_MAX)
        sent[done][1](done)
    assert answered == list(range(3 * UNDER_WAY_MAX))
    assert [command for command, _ in sent] == [DeleteUser("", str(number)) for number in range(3 * UNDER_WAY_MAX)]
