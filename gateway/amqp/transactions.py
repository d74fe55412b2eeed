"""The class tx: a channel holds what it publishes and settles until it is committed, as atomic_commit.py tells.

    select ─► holding ──┬─ commit ─► all of it is visible ─► holding, nothing
                        ├─ rollback ─► publishes are forgotten, deliveries are unacked again ─► holding, nothing
                        └─ the channel closes ─► publishes are forgotten, what was delivered returns to its queues

As in RabbitMQ, publishes and acknowledgements are checked when they come, and publishes routed; mandatory messages that
no queue takes, as there was none or it was deleted meanwhile, come back with the commit, before its answer; one
transaction follows the other; and a commit that is refused is 406 and closes the channel (RabbitMQ: "partial tx
completion"), by which what was acknowledged returns to its queues. Other than there, nothing of it is published then.
"""

from typing import TYPE_CHECKING, Any, Final

from shardmq.errors import PreconditionFailed
from shardmq.gateway.amqp.transaction_buffer import TransactionBuffer
from shardmq.protocol.amqp.methods.transaction import (
    TxCommit,
    TxCommitOk,
    TxRollback,
    TxRollbackOk,
    TxSelect,
    TxSelectOk,
)

if TYPE_CHECKING:
    from shardmq.gateway.amqp.channel import AmqpChannel


# --- methods ----------------------------------------------------------------------------------------------------------


def tx_select(desk: "AmqpChannel", _method: TxSelect) -> None:
    """The channel is transactional from now on.

    Raises:
        PreconditionFailed: it confirms.
    """
    if desk.is_confirming:
        raise PreconditionFailed("cannot switch from confirm to tx mode")
    if desk.transaction is None:
        desk.transaction = desk.outlet = TransactionBuffer(desk)
    desk.send(TxSelectOk())


def tx_commit(desk: "AmqpChannel", method: TxCommit) -> None:
    """Make visible what the channel holds.

    Raises:
        PreconditionFailed: it is not transactional; or something that was settled has returned.
    """
    _transaction(desk).commit(desk.reply(method, lambda _: TxCommitOk()))


def tx_rollback(desk: "AmqpChannel", _method: TxRollback) -> None:
    """Forget what the channel holds.

    Raises:
        PreconditionFailed: it is not transactional.
    """
    _transaction(desk).rollback()
    desk.send(TxRollbackOk())


def _transaction(desk: "AmqpChannel") -> TransactionBuffer:
    if desk.transaction is None:
        raise PreconditionFailed("channel is not transactional")
    return desk.transaction


HANDLERS: Final[dict[type[Any], Any]] = {TxSelect: tx_select, TxCommit: tx_commit, TxRollback: tx_rollback}
