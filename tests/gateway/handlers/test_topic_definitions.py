"""Topics in definitions: exported as topics, their parts left out, and imported whole."""

from collections.abc import Callable

from shardmq.cmd.run.broker import Broker
from shardmq.protocol.native.operations.administration import DefinitionsExport, DefinitionsImport
from shardmq.protocol.native.operations.topics import TopicDeclare, TopicDelete, TopicExtend, TopicInfo
from shardmq.protocol.native.operations.topology import ExchangeBind, ExchangeDeclare, QueueBind, TopologyList
from tests.gateway.rawclient import RawClient

LIMITS = {"x-max-age": "7D", "x-partitioner": "round-robin"}


def test_topics_are_exported_and_imported(start_broker: Callable[..., Broker]) -> None:
    with RawClient(start_broker(shards=2)).open() as client:
        client.ask(TopicDeclare, "orders", 3, LIMITS)
        client.ask(ExchangeDeclare, "in", "fanout", True)
        client.ask(ExchangeBind, "orders", "in", "")
        client.ask(QueueBind, "orders-1", "in", "")
        definitions = client.ask(DefinitionsExport)
        assert definitions["topics"] == [{"name": "orders", "vhost": "/", "partitions": 3, "arguments": LIMITS}]
        assert [row["name"] for row in definitions["exchanges"]] == ["in"]
        assert definitions["queues"] == []
        assert sorted(row["destination"] for row in definitions["bindings"]) == ["orders", "orders-1"]
        client.ask(TopicDelete, "orders")
        told = client.ask(DefinitionsImport, definitions)
        assert {noun: count for noun, count in told["imported"].items() if count} == {"topics": 1, "bindings": 2}
        assert told["skipped"] == []
        assert len(client.ask(TopicInfo, "orders")["partitions"]) == 3
        client.ask(TopicExtend, "orders", 4)
        again = client.ask(DefinitionsImport, definitions)
        assert again["skipped"] == [
            "topic 'orders' in vhost '/': it exists with other partitions or arguments, and stays as it is"
        ]
        assert len(client.ask(TopologyList, "bindings")) == 6
