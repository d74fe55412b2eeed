"""What the consumers of groups ask for, in the arguments of basic.consume."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shardmq.errors import NotFound, PreconditionFailed
from shardmq.gateway.handlers.streams import READER_ARGUMENTS, member_reading
from shardmq.gateway.session.client import Client
from shardmq.gateway.session.groups.subscription import Subscription
from shardmq.topology.arguments import CONSUMER_ARGUMENTS, GROUP, MEMBER_ARGUMENTS, check_arguments
from shardmq.topology.partitions import partitions_of


@dataclass(frozen=True, slots=True)
class AskedConsumer:
    """A consumer as a client asks for it, whatever its protocol.

    Attributes:
        topic: name of the topic, or of a stream.
        tag: its name on the channel; "" for one that is made.
        auto_ack: whether messages are settled as they are delivered.
        prefetch: how many messages it may hold; 0 for no limit.
        exclusive: whether it asks to be the only one.
    """

    topic: str
    tag: str
    auto_ack: bool
    prefetch: int
    exclusive: bool


def is_member(arguments: Mapping[str, Any]) -> bool:
    """Whether a consumer's arguments say that it is a member of a group."""
    return GROUP in arguments


def subscription_of(client: Client, asked: AskedConsumer, arguments: Mapping[str, Any]) -> Subscription:
    """What a consumer of a group asks for.

    Args:
        client: who asks.
        asked: the consumer.
        arguments: its arguments, as they came.

    Raises:
        AccessRefused: the user may not read the topic, or not publish where its dead letters go.
        NotFound: there is no such topic or stream.
        PreconditionFailed: an argument has no meaning, or none for a member of a group.
    """
    thing = f"a consumer of topic '{asked.topic}' in vhost '{client.vhost}'"
    meant = {name: value for name, value in arguments.items() if name not in READER_ARGUMENTS}
    check_arguments(thing, meant, {**CONSUMER_ARGUMENTS, **MEMBER_ARGUMENTS})
    if asked.exclusive or "x-priority" in meant:
        what = "exclusive" if asked.exclusive else "'x-priority'"
        raise PreconditionFailed(f"{what} for {thing}: members of a group share it evenly; leave it out")
    client.permissions.check_read(asked.topic, "topic")
    if partitions_of(client.state.topology, client.vhost, asked.topic) is None:
        if (client.vhost, asked.topic) in client.state.topology.queues:
            raise PreconditionFailed(
                f"queue '{asked.topic}' in vhost '{client.vhost}' is neither topic nor stream: it has no groups; leave "
                f"out '{GROUP}', or declare a topic"
            )
        raise NotFound(f"no topic or stream '{asked.topic}' in vhost '{client.vhost}'")
    exchange = meant.get("x-dead-letter-exchange")
    if exchange is not None:
        client.permissions.check_write(exchange, "exchange")
    return Subscription(
        topic=asked.topic,
        group=meant[GROUP],
        is_shared=meant.get("x-group-type", "ordered") == "shared",
        reading=member_reading(thing, arguments, client.state.pass_time()),
        tag=asked.tag,
        auto_ack=asked.auto_ack,
        prefetch=asked.prefetch,
        timeout_ms=meant.get("x-consumer-timeout", 0),
        delivery_limit=meant.get("x-delivery-limit"),
        dead_letter_exchange=exchange,
        dead_letter_routing_key=meant.get("x-dead-letter-routing-key"),
    )
