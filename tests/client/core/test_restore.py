"""The order in which a reconnected connection is made as it was, and what cannot be."""

import pytest

from shardmq.client.api.recovery import Recovered
from shardmq.client.core.channel import ChannelCore
from shardmq.client.core.connection import ConnectionCore
from shardmq.client.core.restore import PAUSES_MAX
from shardmq.errors import AccessRefused, AuthenticationFailed, ChannelError, NotFound, ResourceLocked
from shardmq.limits import CHANNELS_MAX
from shardmq.protocol.native.operations.basic import (
    BasicCancel,
    BasicConsume,
)
from shardmq.protocol.native.operations.connection import (
    ChannelClose,
    ChannelOpen,
    ConnectionClose,
    Ok,
    Refused,
)
from shardmq.protocol.native.operations.topology import (
    ExchangeBind,
    ExchangeDeclare,
    QueueBind,
    QueueDeclare,
)
from tests.client.core.harness import Waiter, delivery, hear, sent
from tests.client.core.recovering import LOST, ask, consume, let_in, opened, publish, restore


def come_back(core: ConnectionCore) -> None:
    """Lose the connection, open another one, and its only channel; what comes next is left to be answered."""
    core.break_off(LOST)
    let_in(core)
    [opening] = sent(core)
    hear(core, Ok(opening.request, 1))


def test_channels_exchanges_queues_bindings_and_consumers_come_back_in_that_order() -> None:
    core, channel, witness = opened()
    inbox = consume(core, channel, "q", "c")
    ask(core, channel, QueueBind, "q", "x", "k", {})
    ask(core, channel, ExchangeBind, "y", "x", "", {})
    ask(core, channel, QueueDeclare, "q", True, {}, result={"queue": "q", "messages": 0, "consumers": 0})
    ask(core, channel, ExchangeDeclare, "x", "topic")
    ask(core, channel, ExchangeDeclare, "passive", "topic", False, {}, False, False, True)
    second = core.open_channel(Waiter(), Waiter())
    hear(core, Ok(sent(core)[0].request, 2))
    assert core.break_off(LOST)
    let_in(core)
    asked = restore(core)
    assert [type(operation) for operation in asked] == [
        ChannelOpen,
        ChannelOpen,
        ExchangeDeclare,
        QueueDeclare,
        QueueBind,
        ExchangeBind,
        BasicConsume,
    ]
    assert second.is_open
    assert witness.told == [LOST, Recovered("localhost:5672", {}, [])]
    hear(core, delivery(1, 2))
    assert [found.frame.tag for found in inbox.deliveries] == [1]
    assert inbox.ends == []


def test_declarations_without_a_channel_are_made_on_one_of_its_own() -> None:
    core, channel, _ = opened()
    ask(core, channel, ExchangeDeclare, "x", "topic")
    core.close_channel(channel, ResourceLocked("closed"), Waiter())  # type: ignore[arg-type]
    [closing] = sent(core)
    hear(core, Ok(closing.request, 1))
    core.break_off(LOST)
    let_in(core)
    assert [type(operation) for operation in restore(core)] == [ChannelOpen, ExchangeDeclare, ChannelClose]
    assert core.open_channel(Waiter(), Waiter()).number == 1


def test_a_queue_the_server_named_has_another_name_and_bindings_and_consumers_follow() -> None:
    core, channel, witness = opened()
    declared = {"queue": "amq.gen-1", "messages": 0, "consumers": 0}
    ask(core, channel, QueueDeclare, "", False, {}, True, result=declared)
    ask(core, channel, QueueBind, "amq.gen-1", "x", "k", {})
    inbox = consume(core, channel, "amq.gen-1", "c")
    for life in ("amq.gen-2", "amq.gen-3"):
        core.break_off(LOST)
        let_in(core)
        asked = restore(core, name=life)
        assert [operation.queue for operation in asked[1:]] == ["", life, life]  # type: ignore[attr-defined]
    assert witness.told[-1].renamed == {"amq.gen-2": "amq.gen-3"}
    assert witness.told[1].renamed == {"amq.gen-1": "amq.gen-2"}
    assert inbox.ends == []


def test_a_server_named_queue_that_is_still_there_is_kept() -> None:
    core, channel, witness = opened()
    ask(core, channel, QueueDeclare, "", True, {}, result={"queue": "amq.gen-1", "messages": 0, "consumers": 0})
    core.break_off(LOST)
    let_in(core)
    _, declaring = restore(core)
    assert isinstance(declaring, QueueDeclare)
    assert (declaring.queue, declaring.passive) == ("amq.gen-1", True)
    assert witness.told[-1].renamed == {}


def test_what_the_lost_connection_still_holds_is_asked_for_again_after_a_rest() -> None:
    core, channel, witness = opened()
    ask(core, channel, QueueDeclare, "mine", False, {}, True, result={"queue": "mine", "messages": 0, "consumers": 0})
    come_back(core)
    for _ in range(3):
        [declaring] = sent(core)
        assert not core.is_pausing
        hear(core, Refused(declaring.request, 1, 405, "another connection's"))
        assert core.is_pausing
        core.go_on()
    restore(core)
    assert witness.told[-1].failed == []


def test_what_cannot_be_made_again_is_told_and_its_consumer_ends() -> None:
    core, channel, witness = opened()
    inbox = consume(core, channel, "deleted by somebody", "c")
    come_back(core)
    [consuming] = sent(core)
    hear(core, Refused(consuming.request, 1, 404, "no queue"))
    assert core.state.is_up
    assert witness.told[-1].failed == ["consumer 'c': NOT_FOUND - no queue"]
    assert [type(error) for error in inbox.ends] == [NotFound]
    core.break_off(LOST)
    let_in(core)
    assert [type(operation) for operation in restore(core)] == [ChannelOpen]


def consume_exclusively(core: ConnectionCore, channel: ChannelCore) -> Waiter:
    inbox = Waiter()
    core.consume(channel, BasicConsume(0, 1, "q", "c", False, 10, {}, True), inbox, Waiter())
    [consuming] = sent(core)
    hear(core, Ok(consuming.request, 1, {"consumer": "c"}))
    return inbox


def test_an_exclusive_consumer_is_begun_anew_when_that_of_the_lost_connection_is_gone() -> None:
    core, channel, witness = opened()
    inbox = consume_exclusively(core, channel)
    come_back(core)
    refuse_exclusive(core, 3)
    assert core.state.is_up, "nothing else waits for it"
    assert witness.told[-1].failed == []
    [consuming] = sent(core)
    assert not core.is_pausing
    hear(core, Ok(consuming.request, 1, {"consumer": "c"}))
    assert not core.is_pausing
    hear(core, delivery(1, 2))
    assert (len(inbox.deliveries), inbox.ends) == (1, [])


def refuse_exclusive(core: ConnectionCore, times: int) -> None:
    """Say that another has the queue, and let the pauses pass."""
    for _ in range(times):
        [consuming] = sent(core)
        assert consuming.exclusive
        hear(core, Refused(consuming.request, 1, 403, "queue 'q' in vhost '/' in exclusive use"))
        assert core.is_pausing
        core.go_on()


def test_an_exclusive_consumer_that_another_keeps_ends_in_the_end_and_the_connection_goes_on() -> None:
    core, channel, _ = opened()
    inbox = consume_exclusively(core, channel)
    come_back(core)
    refuse_exclusive(core, PAUSES_MAX)
    [consuming] = sent(core)
    hear(core, Refused(consuming.request, 1, 403, "queue 'q' in vhost '/' in exclusive use"))
    assert [type(error) for error in inbox.ends] == [AccessRefused]
    assert (core.is_pausing, core.state.is_up, channel.consumers) == (False, True, {})


def test_an_exclusive_consumer_that_the_program_begins_anew_meanwhile_is_one_consumer() -> None:
    core, channel, _ = opened()
    consume_exclusively(core, channel)
    come_back(core)
    [consuming] = sent(core)
    hear(core, Refused(consuming.request, 1, 403, "queue 'q' in vhost '/' in exclusive use"))
    core.cancel(channel, "c", Waiter())
    [cancelling] = sent(core)
    hear(core, Ok(cancelling.request, 1))
    inbox = consume_exclusively(core, channel)
    core.go_on()
    assert (sent(core), core.is_pausing, inbox.ends) == ([], False, [])


def test_a_connection_that_is_lost_again_asks_for_its_exclusive_consumer_in_the_next_life() -> None:
    core, channel, _ = opened()
    inbox = consume_exclusively(core, channel)
    for _ in range(2):
        come_back(core)
        refuse_exclusive(core, 1)
    core.break_off(LOST)
    let_in(core)
    assert not core.is_pausing
    restore(core)
    hear(core, delivery(1, 2))
    assert (len(inbox.deliveries), inbox.ends) == (1, [])


def test_a_consumer_that_may_not_consume_any_more_ends_at_once() -> None:
    core, channel, _ = opened()
    inbox = consume(core, channel, "q", "c")
    come_back(core)
    [consuming] = sent(core)
    hear(core, Refused(consuming.request, 1, 403, "access to queue 'q' refused"))
    assert core.state.is_up
    assert [type(error) for error in inbox.ends] == [AccessRefused]


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "cancelled"])
def test_a_consumer_that_is_ended_between_two_tries_is_not_begun_anew(is_closed: bool) -> None:
    core, channel, witness = opened()
    inbox = consume_exclusively(core, channel)
    come_back(core)
    [consuming] = sent(core)
    hear(core, Refused(consuming.request, 1, 403, "queue 'q' in vhost '/' in exclusive use"))
    ended = Waiter()
    if is_closed:
        core.close_channel(channel, ChannelError("closed"), ended)
    else:
        core.cancel(channel, "c", ended)
    [ending] = sent(core)
    assert type(ending) is (ChannelClose if is_closed else BasicCancel)
    hear(core, Ok(ending.request, 1))
    core.go_on()
    assert core.state.is_up
    assert sent(core) == []
    assert (ended.results, len(inbox.ends)) == ([None], 1)
    assert witness.told[-1].failed == []


def test_a_channel_that_is_closed_while_it_is_opened_anew_is_closed_at_the_broker() -> None:
    core, channel, witness = opened()
    ask(core, channel, ExchangeDeclare, "x", "topic")
    inbox, closed = consume(core, channel, "q", "c"), Waiter()
    core.break_off(LOST)
    let_in(core)
    [opening] = sent(core)
    core.close_channel(channel, ChannelError("closed"), closed)
    own, closing = sent(core)
    assert (type(own), own.channel) == (ChannelOpen, 2)  # for the exchange
    assert (type(closing), closing.channel) == (ChannelClose, 1)
    assert core.open_channel(Waiter(), Waiter()).number == 3
    hear(core, Ok(opening.request, 1), Ok(own.request, 2))
    asked = restore(core)
    assert [operation.channel for operation in asked if isinstance(operation, ChannelOpen)] == [3]
    assert closed.results == []
    hear(core, Ok(closing.request, 1))
    assert closed.results == [None]
    assert [type(error) for error in inbox.ends] == [ChannelError]
    assert witness.told[-1].failed == []
    assert {core.open_channel(Waiter(), Waiter()).number for _ in range(3)} == {1, 2, 4}


def test_what_is_held_on_a_channel_is_not_sent_where_its_end_ends_the_restoration() -> None:
    core, channel, witness = opened()
    [publishing] = publish(core, channel, 1)
    core.break_off(LOST)
    asking = Waiter()
    core.request(channel, QueueDeclare(0, 0, "q"), asking)
    let_in(core)
    [opening] = sent(core)
    core.close_channel(channel, ChannelError("closed"), Waiter())
    assert core.state.is_up
    [closing] = sent(core)
    assert type(closing) is ChannelClose
    assert [type(error) for error in (*publishing.refused, *asking.errors)] == [ChannelError] * 2
    hear(core, Ok(opening.request, 1), Ok(closing.request, 1))
    assert witness.told[-1].failed == []


def test_channels_that_are_given_up_while_it_is_down_are_not_opened_and_use_up_no_numbers() -> None:
    core, _, _ = opened()
    under_way = Waiter()
    core.open_channel(Waiter(), under_way)
    core.break_off(LOST)
    under_way.is_gone = True
    for _ in range(2 * CHANNELS_MAX):
        waiter = Waiter()
        assert core.open_channel(Waiter(), waiter).number == 2
        waiter.is_gone = True
    let_in(core)
    assert [operation.channel for operation in restore(core)] == [1]  # type: ignore[attr-defined]
    assert core.open_channel(Waiter(), Waiter()).number == 2


def test_a_channel_that_is_given_up_while_it_is_opened_anew_is_closed() -> None:
    core, channel, _ = opened()
    reply = Waiter()
    core.break_off(LOST)
    core.open_channel(Waiter(), reply)
    let_in(core)
    openings = sent(core)
    assert [opening.channel for opening in openings] == [1, 2]
    reply.is_gone = True
    hear(core, *[Ok(opening.request, opening.channel) for opening in openings])
    [closing] = sent(core)
    assert (type(closing), closing.channel) == (ChannelClose, 2)
    assert core.state.is_up
    hear(core, Ok(closing.request, 2))
    assert core.open_channel(Waiter(), Waiter()).number == 2
    assert channel.is_open


def test_a_channel_opened_and_a_consumer_cancelled_while_it_is_restored() -> None:
    core, channel, _ = opened()
    inbox = consume(core, channel, "q", "c")
    come_back(core)
    [consuming] = sent(core)
    reply, cancelled = Waiter(), Waiter()
    late = core.open_channel(Waiter(), reply)
    core.cancel(channel, "c", cancelled)
    [cancel] = sent(core)
    assert isinstance(cancel, BasicCancel)
    hear(core, Ok(consuming.request, 1, {"consumer": "c"}), Ok(cancel.request, 1))
    assert (inbox.ends, cancelled.results) == ([None], [None])
    restore(core)
    assert late.is_open
    assert reply.results == [None]


def test_a_consumer_whose_request_was_under_way_is_asked_for_again() -> None:
    core, channel, _ = opened()
    consuming, inbox = Waiter(), Waiter()
    core.consume(channel, BasicConsume(0, 1, "q", "", False, 10), inbox, consuming)
    core.break_off(LOST)
    let_in(core)
    restore(core)
    [request] = sent(core)
    hear(core, Ok(request.request, 1, {"consumer": "c"}), delivery(1, 1))
    assert consuming.results == ["c"]
    assert len(inbox.deliveries) == 1


@pytest.mark.parametrize("code", [403, 530])
def test_a_refusal_ends_the_recovery(code: int) -> None:
    core, channel, witness = opened()
    [waiter] = publish(core, channel, 2)
    core.break_off(LOST)
    core.open({}, Waiter())
    with pytest.raises(AuthenticationFailed) as refused:
        hear(core, ConnectionClose(code, "not you"))
    assert not core.break_off(refused.value)
    assert [type(error) for error in waiter.refused] == [AuthenticationFailed]
    assert isinstance(witness.told[-1], AuthenticationFailed)
