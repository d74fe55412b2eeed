"""Recovery in the core, without any I/O: what is said again, in which order, and what is not."""

from typing import Any

import pytest

from shardmq.client.api.recovery import STEADY_SECONDS, Backoff, Recovered, Recovery
from shardmq.client.api.url import parse, parse_all
from shardmq.client.core.channel import ChannelCore
from shardmq.client.core.connection import ConnectionCore
from shardmq.client.core.declarations import Declarations
from shardmq.errors import AuthenticationFailed, ConnectionLost, InvalidRequest, NotFound, ResourceLocked
from shardmq.message import record as records
from shardmq.protocol.native.operations.basic import (
    BasicAck,
    BasicCancel,
    BasicConfirm,
    BasicConsume,
    BasicGet,
    BasicNack,
    BasicPublish,
)
from shardmq.protocol.native.operations.connection import (
    ChannelClose,
    ChannelOpen,
    ConnectionBlocked,
    ConnectionClose,
    ConnectionOpen,
    ConnectionUnblocked,
    Ok,
    Refused,
)
from shardmq.protocol.native.operations.fields import Operation
from shardmq.protocol.native.operations.topology import (
    ExchangeBind,
    ExchangeDeclare,
    ExchangeDelete,
    QueueBind,
    QueueDeclare,
    QueueDelete,
    QueueUnbind,
)

from .test_core import Waiter, delivery, hear, sent

LOST = ConnectionLost("the network is down")


class Witness:
    """An observer that remembers."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def confirmed(self, channel: int, messages: int) -> None:
        self.told.append(("confirmed", channel, messages))

    def returned(self, frame: Any) -> None:
        self.told.append(("returned", frame))

    def blocked(self, reason: str) -> None:
        self.told.append(("blocked", reason))

    def unblocked(self) -> None:
        self.told.append("unblocked")

    def lost(self, error: Any) -> None:
        self.told.append(error)

    def recovered(self, recovered: Recovered) -> None:
        self.told.append(recovered)


def opened() -> tuple[ConnectionCore, ChannelCore, Witness]:
    """An open core that recovers, with one channel."""
    witness = Witness()
    core = ConnectionCore(parse("shardmq://localhost/"), 60, recovers=True, observer=witness)
    core.open({}, Waiter())
    hear(core, Ok(1, 0, {"product": "shardmq", "heartbeat": 60}))
    channel = core.open_channel(Waiter(), Waiter())
    hear(core, Ok(2, 1))
    sent(core)
    return core, channel, witness


def ask(core: ConnectionCore, channel: ChannelCore, kind: Any, *fields: Any, result: Any = None) -> Waiter:
    """A request that is carried out."""
    waiter = Waiter()
    core.request(channel, kind(0, 0, *fields), waiter)
    [operation] = sent(core)
    hear(core, Ok(operation.request, channel.number, result))
    assert waiter.results
    return waiter


def consume(core: ConnectionCore, channel: ChannelCore, queue: str, tag: str) -> Waiter:
    inbox = Waiter()
    core.consume(channel, BasicConsume(0, channel.number, queue, tag, False, 10), inbox, Waiter())
    [operation] = sent(core)
    hear(core, Ok(operation.request, channel.number, {"consumer": tag}))
    return inbox


def publish(core: ConnectionCore, channel: ChannelCore, *counts: int) -> list[Waiter]:
    waiters = [Waiter() for _ in counts]
    for count, waiter in zip(counts, waiters, strict=True):
        core.publish(channel, ("", "q", 1, count, records.pack_many([b"x"] * count), 0, 0, 0, 0), waiter)
    return waiters


def let_in(core: ConnectionCore) -> None:
    """The connection is accepted again."""
    core.open({}, Waiter())
    [opening] = sent(core)
    assert isinstance(opening, ConnectionOpen)
    hear(core, Ok(opening.request, 0, {"heartbeat": 60}))


def restore(core: ConnectionCore, **names: str) -> list[Operation]:
    """Carry out everything until the core is up; returns what it asked for. `names` are of queues without one."""
    asked: list[Operation] = []
    fresh = iter(names.values())
    while not core.state.is_up:
        operations = sent(core)
        assert operations, "the restoration stands still"
        asked += operations
        for operation in operations:
            result = None
            if isinstance(operation, QueueDeclare):
                result = {"queue": operation.queue or next(fresh), "messages": 0, "consumers": 0}
            if isinstance(operation, BasicConsume):
                result = {"consumer": operation.consumer}
            hear(core, Ok(operation.request, operation.channel, result))  # type: ignore[attr-defined]
    return asked


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
    assert "BasicGet was under way" in getting.errors[0].text
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
    core.break_off(LOST)
    let_in(core)
    [opening] = sent(core)
    hear(core, Ok(opening.request, 1))
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
    core.break_off(LOST)
    let_in(core)
    [opening] = sent(core)
    hear(core, Ok(opening.request, 1))
    [consuming] = sent(core)
    hear(core, Refused(consuming.request, 1, 404, "no queue"))
    assert core.state.is_up
    assert witness.told[-1].failed == ["consumer 'c': NOT_FOUND - no queue"]
    assert [type(error) for error in inbox.ends] == [NotFound]
    core.break_off(LOST)
    let_in(core)
    assert [type(operation) for operation in restore(core)] == [ChannelOpen]


def test_a_channel_opened_and_a_consumer_cancelled_while_it_is_restored() -> None:
    core, channel, _ = opened()
    inbox = consume(core, channel, "q", "c")
    core.break_off(LOST)
    let_in(core)
    [opening] = sent(core)
    hear(core, Ok(opening.request, 1))
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


def test_auto_delete_queues_and_exchanges_are_forgotten_with_their_last_consumer_and_binding() -> None:
    core, channel, _ = opened()
    ask(core, channel, ExchangeDeclare, "x", "topic", False, {}, True)
    declared = {"queue": "q", "messages": 0, "consumers": 0}
    ask(core, channel, QueueDeclare, "q", False, {}, False, True, result=declared)
    ask(core, channel, QueueBind, "q", "x", "k", {})
    consume(core, channel, "q", "c")
    core.cancel(channel, "c", Waiter())
    [cancel] = sent(core)
    hear(core, Ok(cancel.request, 1))
    assert not core.state.declarations.queues
    assert not core.state.declarations.bindings
    assert not core.state.declarations.exchanges


def test_deleting_an_exchange_forgets_the_bindings_on_both_its_sides() -> None:
    declared = Declarations()
    for bound in (ExchangeBind(1, 1, "b", "a", ""), ExchangeBind(1, 1, "c", "b", ""), QueueBind(1, 1, "q", "b", "")):
        declared.note(bound, None)
    declared.note(ExchangeBind(1, 1, "d", "a", "", {"x": 1}), None)
    declared.note(ExchangeDelete(1, 1, "b"), None)
    assert [operation.destination for operation in declared.bindings.values()] == ["d"]  # type: ignore[union-attr]


def test_a_backoff_tries_every_address_beginning_behind_the_lost_one_and_pauses_between_turns() -> None:
    addresses = parse_all("shardmq://a,b,c/")
    backoff = Backoff(Recovery(first_seconds=1, max_seconds=3, attempts=4), addresses)
    backoff.connected(addresses[0])
    backoff.lost(100, 1)
    planned = []
    while (step := backoff.next(100)) is not None:
        planned.append(step)
    assert [address.host for _, address in planned] == ["b", "c", "a"] * 4
    longest = [1, 0, 0, 2, 0, 0, 3, 0, 0, 3, 0, 0]
    assert all(0 <= pause <= most for (pause, _), most in zip(planned, longest, strict=True))
    backoff.lost(200, STEADY_SECONDS - 1)
    assert backoff.next(200) is None
    backoff.lost(300, STEADY_SECONDS)
    assert backoff.next(300) is not None


def test_a_backoff_gives_up_in_time() -> None:
    backoff = Backoff(Recovery(seconds=10), parse_all("shardmq://a/"))
    backoff.lost(100, 60)
    assert backoff.next(109.5) is not None
    assert backoff.next(110.1) is None


@pytest.mark.parametrize("recovery", [Recovery(first_seconds=0), Recovery(first_seconds=20), Recovery(attempts=0)])
def test_wishes_that_make_no_sense_are_refused(recovery: Recovery) -> None:
    with pytest.raises(InvalidRequest):
        recovery.check()
