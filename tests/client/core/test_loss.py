"""What a lost connection means for what was under way: what is asked again, and what is not."""

import pytest

from shardmq.errors import ConnectionLost, NotFound, ResourceLocked
from shardmq.message import record as records
from shardmq.protocol.native.operations.basic import (
    BasicAck,
    BasicConfirm,
    BasicGet,
    BasicNack,
    BasicPublish,
)
from shardmq.protocol.native.operations.connection import (
    ChannelOpen,
    ConnectionBlocked,
    ConnectionClose,
    ConnectionUnblocked,
    Ok,
    Refused,
)
from shardmq.protocol.native.operations.topology import (
    QueueDeclare,
    QueueDelete,
    QueueUnbind,
)
from tests.client.core.harness import Waiter, delivery, hear, sent
from tests.client.core.recovering import LOST, consume, let_in, opened, publish, restore


def test_unconfirmed_publishes_and_requests_are_said_again_in_order_before_what_came_meanwhile() -> None:
    core, channel, _ = opened()
    first, second, third = publish(core, channel, 3, 4, 5)
    asking = Waiter()
    core.request(channel, QueueDeclare(0, 0, "q"), asking)
    [one, two, three, declaring] = sent(core)
    hear(core, BasicConfirm(1, [(one.request, one.request)]))
    core.break_off(LOST)
    [fourth] = publish(core, channel, 1)
    assert sent(core) == []
    let_in(core)
    restore(core)
    again = sent(core)
    assert [type(operation) for operation in again] == [BasicPublish, BasicPublish, QueueDeclare, BasicPublish]
    assert [again[0].sequence, again[1].sequence, again[3].sequence] == [4, 8, 13]
    assert {operation.producer for operation in (one, two, three, again[0], again[3])} == {channel.producer}
    numbers = [operation.request for operation in again]
    assert numbers == sorted(set(numbers))
    assert numbers[0] > declaring.request
    hear(core, BasicConfirm(1, [(numbers[0], numbers[1]), (numbers[3], numbers[3])]))
    hear(core, Ok(numbers[2], 1, {"queue": "q"}))
    assert [waiter.confirmed for waiter in (first, second, third, fourth)] == [3, 4, 5, 1]
    assert asking.results == [{"queue": "q"}]


def test_a_loss_in_the_middle_of_the_resend_sends_the_rest_again_under_the_same_numbers() -> None:
    core, channel, _ = opened()
    waiters = publish(core, channel, *[1] * 6)
    core.break_off(LOST)
    let_in(core)
    core.break_off(ConnectionLost("and again, before it was restored"))
    let_in(core)
    restore(core)
    again = sent(core)
    hear(core, BasicConfirm(1, [(again[0].request, again[2].request)]))
    core.break_off(LOST)
    let_in(core)
    restore(core)
    rest = sent(core)
    assert [operation.sequence for operation in rest] == [4, 5, 6]
    hear(core, BasicConfirm(1, [(rest[0].request, rest[2].request)]))
    assert [waiter.confirmed for waiter in waiters] == [1] * 6
    assert all(not waiter.refused for waiter in waiters)


def test_much_that_was_held_is_sent_in_portions_and_what_is_new_goes_behind_it() -> None:
    core, channel, _ = opened()
    big = records.pack(None, bytes(600_000))
    for _ in range(5):
        core.publish(channel, ("", "q", 1, 1, big, 0, 0, 0, 0), Waiter())
    core.break_off(LOST)
    let_in(core)
    restore(core)
    portions = [[operation.sequence for operation in sent(core)]]
    publish(core, channel, 1)
    core.request(channel, QueueDelete(0, 0, "q"), Waiter())
    assert sent(core) == []
    while core.state.is_holding:
        core.state.pump()
        portions.append([getattr(operation, "sequence", "delete") for operation in sent(core)])
    assert portions == [[1, 2], [3, 4], [5, 6, "delete"]]


def test_what_may_not_be_done_twice_is_lost_and_what_the_loss_itself_does_is_done() -> None:
    core, channel, _ = opened()
    inbox = consume(core, channel, "q", "c")
    getting, cancelling, closing = Waiter(), Waiter(), Waiter()
    core.get(channel, "q", False, getting)
    core.cancel(channel, "c", cancelling)
    other = core.open_channel(Waiter(), Waiter())
    core.close_channel(other, ResourceLocked("closed"), closing)  # type: ignore[arg-type]
    core.break_off(LOST)
    assert [type(error) for error in getting.errors] == [ConnectionLost]
    assert "getting from queue 'q' was under way" in getting.errors[0].text
    assert cancelling.results == closing.results == [None]
    assert inbox.ends == [None]
    let_in(core)
    assert [type(operation) for operation in restore(core)] == [ChannelOpen]


def test_a_get_asked_for_while_it_is_down_waits() -> None:
    core, channel, _ = opened()
    core.break_off(LOST)
    getting = Waiter()
    core.get(channel, "q", False, getting)
    let_in(core)
    restore(core)
    [get] = sent(core)
    assert isinstance(get, BasicGet)


def test_a_deletion_asked_again_that_finds_nothing_is_done() -> None:
    core, channel, _ = opened()
    deleting, bound = Waiter(), Waiter()
    core.request(channel, QueueDelete(0, 0, "q"), deleting)
    core.request(channel, QueueUnbind(0, 0, "q", "x", "", {}), bound)
    core.break_off(LOST)
    let_in(core)
    restore(core)
    deletion, unbinding = sent(core)
    hear(core, Refused(deletion.request, 1, 404, "no queue 'q'"), Refused(unbinding.request, 1, 404, "no queue 'q'"))
    assert deleting.results == [{"messages": 0}]
    assert [type(error) for error in bound.errors] == [NotFound]


def test_stale_acks_are_dropped_and_tags_rise_over_all_lives() -> None:
    core, channel, _ = opened()
    inbox = consume(core, channel, "q", "c")
    hear(core, delivery(1, 5))
    channel.acknowledgements.ack(1, 1)
    core.break_off(LOST)
    assert channel.stale_tag == 5
    let_in(core)
    restore(core)
    hear(core, delivery(1, 3))
    assert [message.delivery_tag for message in inbox.deliveries[-1].messages()] == [6, 7, 8]
    channel.acknowledgements.ack(2, 6)
    channel.acknowledgements.singles.extend([3, 8])
    channel.acknowledgements.nack(4, 7, True, 250)
    core.flush_acknowledgements(channel)
    assert sent(core) == [BasicAck(1, [(1, 1), (3, 3)]), BasicNack(1, [(1, 2)], True, 250)]
    assert channel.unacked_up_to(0) == []


def test_blocked_publishes_wait_and_requests_pass_them() -> None:
    core, channel, witness = opened()
    hear(core, ConnectionBlocked("disk"))
    publish(core, channel, 1, 1)
    core.request(channel, QueueDelete(0, 0, "q"), Waiter())
    assert [type(operation) for operation in sent(core)] == [QueueDelete]
    assert "disk" in core.state.excuse()
    hear(core, ConnectionUnblocked())
    assert [operation.sequence for operation in sent(core)] == [1, 2]
    publish(core, channel, 1)
    assert [operation.sequence for operation in sent(core)] == [3]
    assert witness.told[:2] == [("blocked", "disk"), "unblocked"]


def test_an_alarm_that_was_on_when_the_connection_was_lost_is_over_unless_the_next_one_says_so() -> None:
    core, _, witness = opened()
    hear(core, ConnectionBlocked("disk"))
    core.break_off(LOST)
    assert core.state.blocked is None
    core.open({}, Waiter())
    [opening] = sent(core)
    hear(core, Ok(opening.request, 0, {"heartbeat": 60}), ConnectionBlocked("memory"))
    core.break_off(LOST)  # before it is restored
    let_in(core)
    restore(core)
    blocked = [told for told in witness.told if told in ("unblocked", LOST) or isinstance(told, tuple)]
    assert blocked == [("blocked", "disk"), LOST, "unblocked", ("blocked", "memory"), "unblocked"]
    hear(core, ConnectionBlocked("again"))
    core.lose(ConnectionLost("for good"))
    assert witness.told[-1] == "unblocked"
    core, _, witness = opened()
    hear(core, ConnectionBlocked("disk"))
    core.close(ConnectionLost("closed"))
    assert witness.told == [("blocked", "disk")]


def test_what_was_never_sent_can_be_withdrawn_and_what_was_cannot() -> None:
    core, channel, _ = opened()
    [before] = publish(core, channel, 1)
    core.break_off(LOST)
    [held] = publish(core, channel, 1)
    assert channel.withdraw(held)
    assert not channel.withdraw(held)
    assert not channel.withdraw(before)
    let_in(core)
    restore(core)
    assert [operation.sequence for operation in sent(core)] == [1]


def test_being_expelled_is_a_loss_and_a_protocol_fault_is_the_end() -> None:
    core, _, _ = opened()
    with pytest.raises(ConnectionLost) as expelled:
        hear(core, ConnectionClose(320, "maintenance"))
    assert core.break_off(expelled.value)
    core, _, _ = opened()
    with pytest.raises(Exception, match="FRAME_ERROR") as fault:
        hear(core, ConnectionClose(501, "what was that?"))
    assert not core.break_off(fault.value)  # type: ignore[arg-type]


def test_an_argument_that_cannot_be_said_fails_where_it_is_asked_also_while_it_is_down() -> None:
    core, channel, _ = opened()
    core.break_off(LOST)
    with pytest.raises(TypeError):
        core.request(channel, QueueDeclare(0, 0, "q", False, {"x": object()}), Waiter())
    let_in(core)
    restore(core)
    assert sent(core) == []
