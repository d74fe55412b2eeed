"""Methods about exchanges, queues, bindings: RabbitMQ's rules in front of what native requests do."""

from typing import Any, Final

from shardmq.gateway import declarations
from shardmq.gateway.amqp import replies
from shardmq.gateway.amqp.channel import AmqpChannel
from shardmq.gateway.amqp.methods import QueueDeclare, QueueDeclareOk
from shardmq.wire import operations


def queue_declare(desk: AmqpChannel, method: QueueDeclare) -> None:
    """Make a queue, or see what is in it."""
    if replies.is_reply_name(method.queue):
        replies.declare(desk, method)
        return

    def shape(table: dict[str, Any]) -> QueueDeclareOk | None:
        desk.last_queue = table["queue"]
        return None if method.nowait else QueueDeclareOk(table["queue"], table["messages"], table["consumers"])

    operation = operations.QueueDeclare(
        0, desk.number, method.queue, durable=method.durable, arguments=method.arguments, passive=method.passive,
        exclusive=method.exclusive, auto_delete=method.auto_delete,
    )  # fmt: skip
    declarations.queue_declare(desk.channel, operation, desk.reply(method, shape))


HANDLERS: Final[dict[type[Any], Any]] = {QueueDeclare: queue_declare}
