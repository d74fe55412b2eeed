"""What a connection has declared, and what is forgotten with it."""

from shardmq.client.core.declarations import Declarations
from shardmq.protocol.native.operations.connection import (
    Ok,
)
from shardmq.protocol.native.operations.topology import (
    ExchangeBind,
    ExchangeDeclare,
    ExchangeDelete,
    QueueBind,
    QueueDeclare,
)
from tests.client.core.harness import Waiter, hear, sent
from tests.client.core.recovering import ask, consume, opened


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
