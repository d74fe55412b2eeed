"""The core without any I/O: answers reach who asked, whatever the bytes look like on their way."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from shardmq.client.api.url import parse
from shardmq.client.core.batching import BY_QUEUE
from shardmq.client.core.channel import QUEUES_MAX, QueueNumbers
from shardmq.client.core.connection import ConnectionCore
from shardmq.errors import (
    AuthenticationFailed,
    ChannelError,
    ConnectionFault,
    ConnectionLost,
    NotFound,
    ProtocolError,
    PublishRefused,
)
from shardmq.message import record as records
from shardmq.protocol.native.operations.basic import (
    BasicCancel,
    BasicCancelled,
    BasicConfirm,
    BasicConsume,
    BasicDeliver,
    BasicNack,
    BasicPublish,
    BasicPutBack,
    BasicRefused,
)
from shardmq.protocol.native.operations.codec import encode
from shardmq.protocol.native.operations.connection import (
    ChannelClose,
    ConnectionClose,
    Heartbeat,
    Ok,
    Refused,
)
from shardmq.protocol.native.operations.fields import Operation
from shardmq.protocol.native.operations.groups import GroupReleased, GroupRevoked
from shardmq.protocol.native.operations.topology import QueueDelete
from tests.client.core.harness import Waiter, consuming, delivery, hear, opened, sent


@given(st.lists(st.integers(1, 5), min_size=1, max_size=8), st.lists(st.integers(1, 60)), st.integers(1, 400))
def test_answers_confirms_and_deliveries_arrive_whole_however_the_bytes_are_cut(
    counts: list[int], cuts: list[int], rest: int
) -> None:
    core, channel = opened()
    inbox = consuming(core, channel)
    publishing, asking = Waiter(), Waiter()
    for count in counts:
        core.publish(channel, ("", "k", 1, count, records.pack_many([b"x"] * count), 0, 0, 0, 0), publishing)
    core.request(channel, QueueDelete(0, 0, "q"), asking)
    said = sent(core)
    numbers = [operation.request for operation in said]
    assert numbers == sorted(set(numbers))
    answers: list[Operation] = [BasicConfirm(1, [(number, number)]) for number in numbers[:-1]]
    answers += [Heartbeat(), Ok(numbers[-1], 1, {"messages": 3})]
    tag = 1
    for count in counts:
        answers.append(delivery(tag, count))
        tag += count
    data = b"".join(map(encode, answers))
    for size in cuts:
        core.receive(data[:size])
        data = data[size:]
    while data:
        core.receive(data[:rest])
        data = data[rest:]
    assert publishing.confirmed == sum(counts)
    assert asking.results == [{"messages": 3}]
    bodies = [message.body for delivery in inbox.deliveries for message in delivery.messages()]
    assert bodies == [b"%d" % number for number in range(1, tag)]
    assert list(channel.unacked) == [(1, tag)]


@given(st.binary(min_size=1, max_size=200))
def test_any_bytes_raise_documented_errors_only(data: bytes) -> None:
    core, channel = opened()
    consuming(core, channel)
    try:
        core.receive(data)
    except ConnectionFault:
        core.lose(ConnectionLost("gone"))


@given(st.data())
def test_mutated_answers_raise_documented_errors_only(data: st.DataObject) -> None:
    core, channel = opened()
    consuming(core, channel)
    core.publish(channel, ("", "k", 1, 1, records.pack(None, b""), 0, 0, 0, 0), Waiter())
    said = bytearray(b"".join(map(encode, [delivery(1, 3), BasicConfirm(1, [(1, 9)]), Ok(3, 1, {"consumer": "d"})])))
    for _ in range(data.draw(st.integers(1, 4))):
        said[data.draw(st.integers(0, len(said) - 1))] = data.draw(st.integers(0, 255))
    try:
        core.receive(bytes(said))
    except ConnectionFault:
        core.lose(ConnectionLost("gone"))


def test_a_confirm_range_settles_all_publishes_in_it_and_a_made_up_one_costs_nothing() -> None:
    core, channel = opened()
    publishing = Waiter()
    for _ in range(5):
        core.publish(channel, ("", "k", 1, 2, records.pack_many([b""] * 2), 0, 0, 0, 0), publishing)
    numbers = [operation.request for operation in sent(core) if isinstance(operation, BasicPublish)]
    hear(core, BasicConfirm(1, [(numbers[1], numbers[3])]))
    assert publishing.confirmed == 6
    hear(core, BasicConfirm(1, [(1, 2**62)]))
    assert publishing.confirmed == 10


def test_a_refused_publish_has_the_class_of_its_code_and_publish_refused_otherwise() -> None:
    core, channel = opened()
    for code, kind in ((404, NotFound), (506, PublishRefused), (541, PublishRefused)):
        publishing = Waiter()
        core.publish(channel, ("", "k", 1, 1, records.pack(None, b""), 0, 0, 0, 0), publishing)
        [request] = sent(core)
        hear(core, BasicRefused(1, [(request.request, request.request)], code, "no"))
        assert [type(error) for error in publishing.refused] == [kind]


def test_loss_tells_everybody_waiting_once_and_every_request_afterwards() -> None:
    core, channel = opened()
    inbox = consuming(core, channel)
    asking, publishing = Waiter(), Waiter()
    core.request(channel, QueueDelete(0, 0, "q"), asking)
    core.publish(channel, ("", "k", 1, 3, records.pack_many([b""] * 3), 0, 0, 0, 0), publishing)
    core.lose(ConnectionLost("gone"))
    core.lose(ConnectionLost("gone again"))
    for errors in (asking.errors, publishing.refused, inbox.ends):
        [error] = errors
        assert isinstance(error, ConnectionLost)
        assert error.text == "gone"
    with pytest.raises(ConnectionLost):
        core.request(channel, QueueDelete(0, 0, "q"), Waiter())
    with pytest.raises(ConnectionLost):
        core.open_channel(Waiter(), Waiter())


def test_a_channel_closed_by_the_server_fails_what_waits_on_it_and_leaves_the_others() -> None:
    core, channel = opened()
    other = core.open_channel(Waiter(), Waiter())
    sent(core)
    inbox, asking, elsewhere = consuming(core, channel), Waiter(), Waiter()
    core.request(channel, QueueDelete(0, 0, "q"), asking)
    core.request(other, QueueDelete(0, 0, "q"), elsewhere)
    hear(core, ChannelClose(0, 1, 406, "unknown delivery tag 7"))
    for error in (asking.errors[0], inbox.ends[0]):
        assert isinstance(error, ChannelError)
        assert error.code == 406
        assert "unknown delivery tag 7" in error.text
    assert not elsewhere.done()
    with pytest.raises(ChannelError):
        core.request(channel, QueueDelete(0, 0, "q"), Waiter())
    late = max(operation.request for operation in sent(core))
    hear(core, Refused(late - 1, 1, 504, "channel 1 is closed"), delivery(1, 2))
    assert core.open_channel(Waiter(), Waiter()).number == 1


def test_who_closes_a_channel_just_as_the_broker_does_hears_why_the_broker_did() -> None:
    core, channel = opened()
    consuming(core, channel, auto_ack=True)
    hear(core, delivery(1, 4))
    closing = Waiter()
    core.close_channel(channel, ChannelError("closed here"), closing)
    [operation] = sent(core)
    hear(core, ChannelClose(0, 1, 406, "unknown delivery tag 7"))
    hear(core, Refused(operation.request, 1, 504, "channel 1 is closed"))
    [error] = closing.errors
    assert isinstance(error, ChannelError)
    assert (error.code, error.is_from_broker) == (406, True)
    assert "unknown delivery tag 7" in error.text
    assert core.state.undelivered == 0
    assert core.open_channel(Waiter(), Waiter()).number == 1
    with pytest.raises(ChannelError, match="closed here"):
        core.request(channel, QueueDelete(0, 0, "q"), Waiter())


def test_a_deleted_queue_ends_its_consumer_with_not_found() -> None:
    core, channel = opened()
    inbox = consuming(core, channel)
    hear(core, BasicCancelled(1, "c"))
    assert [type(error) for error in inbox.ends] == [NotFound]


def test_deliveries_that_cross_a_cancel_reach_the_inbox_before_its_end() -> None:
    core, channel = opened()
    inbox = consuming(core, channel)
    core.cancel(channel, "c", Waiter())
    [cancel] = sent(core)
    hear(core, delivery(1, 2), Ok(cancel.request, 1))
    assert len(inbox.deliveries) == 1
    assert inbox.ends == [None]


def test_a_consumer_whose_caller_gave_up_is_cancelled_and_its_messages_go_back() -> None:
    core, channel = opened()
    asking = Waiter()
    core.consume(channel, BasicConsume(0, 1, "q", "", False, 10), Waiter(), asking)
    [request] = sent(core)
    asking.is_gone = True
    hear(core, Ok(request.request, 1, {"consumer": "late"}), delivery(1, 2, "late"))
    cancel, nack = sent(core)
    assert isinstance(cancel, BasicCancel)
    assert nack == BasicNack(1, [(1, 2)], True)


@pytest.mark.parametrize(
    ("server", "back"),
    [({}, BasicNack(1, [(1, 2)], True)), ({"put_back": True}, BasicPutBack(1, [(1, 2)]))],
    ids=["older", "newer"],
)
def test_what_nobody_has_seen_goes_back_as_the_broker_understands_it(server: dict[str, bool], back: Operation) -> None:
    core, channel = opened(**server)
    consuming(core, channel)
    core.state.leave_consumer(channel, "c")
    hear(core, delivery(1, 2))
    assert sent(core)[1:] == [back]
    consuming(core, channel)
    hear(core, delivery(3, 2))
    core.put_back(channel, 3, 4)
    core.flush_acknowledgements(channel)
    assert sent(core) == [replace(back, tags=[(3, 4)])]
    assert not channel.unacked


def test_messages_of_such_a_consumer_that_are_acked_already_are_not_nacked() -> None:
    core, channel = opened()
    waiter = Waiter()
    core.consume(channel, BasicConsume(0, 1, "q", "", True, 10), waiter, waiter)
    waiter.is_gone = True
    sent(core)
    hear(core, Ok(3, 1, {"consumer": "t"}))
    hear(core, BasicDeliver(1, "t", 1, False, "", "q", 1, 5, 1, 1, 1, records.pack(None, b"m")))
    assert sent(core) == [BasicCancel(4, 1, "t")]
    hear(core, Ok(4, 1))
    assert not channel.unheard


@pytest.mark.parametrize("auto_ack", [False, True])
@pytest.mark.parametrize("is_asked_for", [False, True])
def test_what_comes_for_a_consumer_that_was_left_goes_back_and_it_is_cancelled_once(
    auto_ack: bool, is_asked_for: bool
) -> None:
    core, channel = opened()
    inbox, waiter = consuming(core, channel, auto_ack), Waiter()
    if is_asked_for:
        core.cancel(channel, "c", waiter)
        waiter.is_gone = True
    core.state.leave_consumer(channel, "c")
    core.state.leave_consumer(channel, "c")
    assert sent(core) == [BasicCancel(4, 1, "c")]
    hear(core, delivery(1, 2))
    assert sent(core) == ([] if auto_ack else [BasicNack(1, [(1, 2)], True)])
    hear(core, Ok(4, 1))
    assert (inbox.deliveries, inbox.ends) == ([], [None])
    assert not channel.unheard


def test_undelivered_bytes_are_counted_until_they_are_taken() -> None:
    core, channel = opened()
    inbox = consuming(core, channel, auto_ack=True)
    hear(core, delivery(1, 4))
    assert core.state.undelivered == inbox.deliveries[0].size
    assert not channel.unacked
    core.state.taken(channel, inbox.deliveries[0].size)
    assert core.state.undelivered == 0


@pytest.mark.parametrize("is_ours", [True, False])
def test_what_came_on_a_channel_that_has_ended_is_waited_for_by_nobody(is_ours: bool) -> None:
    core, channel = opened()
    inbox = consuming(core, channel, auto_ack=True)
    hear(core, delivery(1, 4))
    if is_ours:
        core.close_channel(channel, ChannelError("closed"), Waiter())
    else:
        hear(core, ChannelClose(0, 1, 406, "unknown delivery tag"))
    assert core.state.undelivered == 0
    core.state.taken(channel, inbox.deliveries[0].size)
    assert core.state.undelivered == 0


def test_partitions_of_a_consumer_that_is_gone_are_let_go_of_while_its_channel_is_open_and_not_afterwards() -> None:
    core, channel = opened()
    hear(core, GroupRevoked(1, "gone", [0, 2], False))
    assert sent(core) == [GroupReleased(1, "gone", [0, 2])]
    core.close_channel(channel, ChannelError("closed"), Waiter())
    (closing,) = sent(core)
    hear(core, GroupRevoked(1, "gone", [1], False))  # the broker has not heard yet
    assert sent(core) == []
    hear(core, Ok(closing.request, 0), GroupRevoked(1, "gone", [1], False))
    assert sent(core) == []


def test_an_answer_to_what_was_never_asked_is_a_protocol_error() -> None:
    core, _ = opened()
    with pytest.raises(ProtocolError, match="never asked"):
        hear(core, Ok(99, 1))


@pytest.mark.parametrize("result", [None, {}, {"consumer": 3}, []])
def test_an_answer_of_another_shape_is_a_protocol_error(result: Any) -> None:
    core, channel = opened()
    core.consume(channel, BasicConsume(0, 1, "q", "", False, 10), Waiter(), Waiter())
    with pytest.raises(ProtocolError, match="server's answer"):
        hear(core, Ok(3, 1, result))


def test_a_close_before_the_connection_opened_is_an_authentication_failure() -> None:
    core = ConnectionCore(parse("shardmq://localhost/"), 60)
    core.open({}, Waiter())
    with pytest.raises(AuthenticationFailed, match="wrong"):
        hear(core, ConnectionClose(403, "the password is wrong"))


def test_opening_a_connection_that_was_lost_before_it_raises_what_ended_it() -> None:
    core = ConnectionCore(parse("shardmq://localhost/"), 60)
    core.lose(ConnectionLost("it hung up"))
    with pytest.raises(ConnectionLost, match="it hung up"):
        core.open({}, Waiter())


def test_a_close_says_whether_the_broker_went_or_the_client_was_at_fault() -> None:
    core, _ = opened()
    with pytest.raises(ConnectionLost, match="stops"):
        hear(core, ConnectionClose(320, "the gateway stops"))
    core, _ = opened()
    with pytest.raises(ConnectionFault, match="FRAME_ERROR"):
        hear(core, ConnectionClose(501, "what was that?"))


def test_acking_with_multiple_means_what_is_unacked_up_to_the_tag() -> None:
    core, channel = opened()
    consuming(core, channel)
    hear(core, delivery(1, 10))
    channel.acknowledgements.ack(3, 4)
    core.flush_acknowledgements(channel)
    assert channel.unacked_up_to(6) == [(1, 2), (5, 6)]
    assert channel.unacked_up_to(0) == [(1, 2), (5, 10)]
    channel.acknowledgements.ack(1, 10)
    core.flush_acknowledgements(channel)
    assert channel.unacked_up_to(6) == [(6, 6)]


def test_messages_for_queues_by_their_names_are_numbered_for_each_queue() -> None:
    core, channel = opened()
    for key, count in (("a", 2), ("b", 1), ("a", 3), ("b", 1)):
        core.publish(channel, ("", key, 1, count, records.pack_many([b"x"] * count), 0, BY_QUEUE, 0, 0), Waiter())
    core.publish(channel, ("x", "a", 1, 1, records.pack(None, b"x"), 0, 0, 0, 0), Waiter())
    publishes = sent(core)
    assert [operation.sequence for operation in publishes] == [1, 1, 3, 2, 1]
    producers = [operation.producer for operation in publishes]
    assert len(set(producers[:4])) == 1
    assert producers[4] not in producers[:4]


def test_the_numbers_of_a_queue_rise_also_when_too_many_queues_were_met() -> None:
    numbers = QueueNumbers()
    assert [numbers.take("a", 5), numbers.take("a", 5)] == [1, 6]
    assert {numbers.take(f"q{number}", 1) for number in range(QUEUES_MAX)} == {1, 11}
    assert numbers.take("a", 1) == 11
