"""What is kept of exchanges and virtual hosts that are gone: their sums, and no entry of each."""

from collections.abc import Callable

from shardmq.bus.messages.shard import Publish
from shardmq.gateway.handlers.statistics.flow import Flow
from shardmq.gateway.state.traffic import CHANNEL_COUNTS
from shardmq.message.record import pack
from shardmq.protocol.native.operations.basic import BasicConfirm, BasicPublish
from shardmq.protocol.native.operations.connection import ChannelClose, Ok
from shardmq.runtime.statistics.rates import SAMPLE_SECONDS
from shardmq.topology.changes import BindingRemoved, ExchangeRemoved, VhostPut, VhostRemoved
from shardmq.topology.entities import Binding, Exchange, Vhost
from tests.gateway.rawclient import RawClient
from tests.gateway.stage import Stage


def test_exchanges_and_virtual_hosts_that_are_gone_leave_their_sums_alone(start_stage: Callable[..., Stage]) -> None:
    bindings = [Binding("/", name, "q", "") for name in ("kept", "gone")]
    stage = start_stage([("q", 0, {})], [Exchange("/", name, "fanout") for name in ("kept", "gone")], bindings)
    traffic, flow = stage.state.traffic, Flow(stage.state, [], 0.0)
    with RawClient(stage).open() as client:
        for number, exchange in enumerate(("kept", "gone", ""), 1):
            client.send(BasicPublish(2 + number, 1, exchange, "q", 0, 1, pack(None, b"x")))
            stage.expect(0, Publish)
            stage.confirm(0, number)
            assert client.receive() == BasicConfirm(1, [(2 + number, 2 + number)])
        client.send(ChannelClose(9, 1))
        assert client.receive() == Ok(9, 1)
    stage.tell(VhostPut(Vhost("other")))
    traffic.leave("AMQP 0-9-1", "other", (5,) * len(CHANNEL_COUNTS))
    flow.tick(SAMPLE_SECONDS)
    before = flow.table({}, is_detailed=True)["measures"]
    stage.tell(BindingRemoved(bindings[1]), ExchangeRemoved("/", "gone"), VhostRemoved("other"))
    flow.tick(2 * SAMPLE_SECONDS)
    assert set(traffic.tallies) == {("/", "kept"), ("/", "")}
    assert {vhost for _, vhost in traffic.left} == {"/", ""}
    after = flow.table({}, is_detailed=True)["measures"]
    assert (after["routed"], after["protocols"]) == (before["routed"], before["protocols"])
    assert before["routed"] == 3
