"""tx.select, tx.commit, tx.rollback: a channel holds what it publishes and settles until it commits.

    select ─► holding ──┬─ commit ─► all of it is visible ─► holding, nothing
                        ├─ rollback ─► publishes are forgotten, deliveries are unacked again ─► holding, nothing
                        └─ the channel closes ─► publishes are forgotten, what was delivered returns to its queues

As in RabbitMQ, publishes and acknowledgements are checked when they come, and publishes routed; mandatory messages that
no queue takes, as there was none or it was deleted meanwhile, come back with the commit, before its answer; one
transaction follows the other; and a commit that is refused is 406 and closes the channel (RabbitMQ: "partial tx
completion"), by which what was acknowledged returns to its queues. Other than there, nothing of it is published then.
"""

from typing import Any, Final

from shardmq.errors import PreconditionFailed
from shardmq.gateway.amqp.channel import AmqpChannel
from shardmq.gateway.amqp.transaction_buffer import TransactionBuffer
from shardmq.protocol.amqp.methods.transaction import (
    TxCommit,
    TxCommitOk,
    TxRollback,
    TxRollbackOk,
    TxSelect,
    TxSelectOk,
)


def tx_select(channel: AmqpChannel, _method: TxSelect) -> None:
    """Make the channel transactional.

    Raises:
        PreconditionFailed: it confirms.
    """
    if channel.is_confirming:
        raise PreconditionFailed("cannot switch from confirm to tx mode")
    channel.begin_transaction()
    channel.send(TxSelectOk())


def tx_commit(channel: AmqpChannel, method: TxCommit) -> None:
    """Make visible what the channel holds.

    Raises:
        PreconditionFailed: it is not transactional; or something that was settled has returned.
    """
    _transaction(channel).commit(channel.reply(method, lambda _: TxCommitOk()))


def tx_rollback(channel: AmqpChannel, _method: TxRollback) -> None:
    """Forget what the channel holds.

    Raises:
        PreconditionFailed: it is not transactional.
    """
    _transaction(channel).rollback()
    channel.send(TxRollbackOk())


def _transaction(channel: AmqpChannel) -> TransactionBuffer:
    if channel.transaction is None:
        raise PreconditionFailed("channel is not transactional")
    return channel.transaction


HANDLERS: Final[dict[type[Any], Any]] = {TxSelect: tx_select, TxCommit: tx_commit, TxRollback: tx_rollback}
