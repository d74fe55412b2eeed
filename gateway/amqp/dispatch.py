"""Which call carries out each method."""

from typing import Any, Final

from shardmq.gateway.amqp import consume as consuming
from shardmq.gateway.amqp import topology as declarations
from shardmq.gateway.amqp import transactions

HANDLERS: Final[dict[type[Any], Any]] = {**declarations.HANDLERS, **consuming.HANDLERS, **transactions.HANDLERS}
"""What carries out each method on an open channel."""
