"""Requests about topics, as values."""

from collections.abc import Mapping

from shardmq.client.api.results import converted
from shardmq.client.core.requests.request import Request, Table, nothing
from shardmq.client.core.validation import check_names, check_number
from shardmq.errors import InvalidRequest
from shardmq.protocol.native.operations.topics import TopicDeclare, TopicDelete, TopicExtend, TopicInfo
from shardmq.topology.entities import PARTITIONS_MAX


def _table(result: object) -> Table:
    return converted(result, Table, "a request for a table")


def topic_declare(topic: str, partitions: int, limits: Mapping[str, int | None], partitioner: str) -> Request[None]:
    """Declare a topic; `limits` are those of each partition, by the names of their parameters."""
    check_names(topic=topic, partitioner=partitioner)
    check_number("a count of partitions", partitions, 1, PARTITIONS_MAX)
    asked: Table = {}
    for name, value in limits.items():
        if value is not None:
            check_number(name, value, 0, 2**63 - 1)
    retention_ms, retention_bytes, retention_messages = limits.values()
    if retention_ms is not None:
        if retention_ms % 1000:
            raise InvalidRequest(
                f"a retention_ms is whole seconds, such as {-(-retention_ms // 1000)}000; got {retention_ms}"
            )
        asked["x-max-age"] = f"{retention_ms // 1000}s"
    if retention_bytes is not None:
        asked["x-max-length-bytes"] = retention_bytes
    if retention_messages is not None:
        asked["x-max-length"] = retention_messages
    if partitioner != "key":
        asked["x-partitioner"] = partitioner
    return Request(f"declaring topic '{topic}'", nothing, TopicDeclare(0, 0, topic, partitions, asked))


def topic_delete(topic: str, if_unused: bool) -> Request[None]:
    """Delete a topic."""
    check_names(topic=topic)
    return Request(f"deleting topic '{topic}'", nothing, TopicDelete(0, 0, topic, if_unused))


def topic_extend(topic: str, partitions: int) -> Request[None]:
    """Add partitions to a topic."""
    check_names(topic=topic)
    check_number("a count of partitions", partitions, 1, PARTITIONS_MAX)
    return Request(f"extending topic '{topic}'", nothing, TopicExtend(0, 0, topic, partitions))


def topic_info(topic: str) -> Request[Table]:
    """Ask what there is of a topic."""
    check_names(topic=topic)
    return Request(f"asking for topic '{topic}'", _table, TopicInfo(0, 0, topic))
