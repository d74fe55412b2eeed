"""Classes tx and confirm."""

from shardmq.protocol.amqp.methods.fields import Bit, Method, method


@method(90, 10, synchronous=True)
class TxSelect(Method, frozen=True):
    """Make the channel transactional."""


@method(90, 11)
class TxSelectOk(Method, frozen=True):
    """The channel is transactional."""


@method(90, 20, synchronous=True)
class TxCommit(Method, frozen=True):
    """Publish and settle what the transaction holds, all or nothing."""


@method(90, 21)
class TxCommitOk(Method, frozen=True):
    """The transaction is committed; the next one begins."""


@method(90, 30, synchronous=True)
class TxRollback(Method, frozen=True):
    """Drop what the transaction holds."""


@method(90, 31)
class TxRollbackOk(Method, frozen=True):
    """The transaction is dropped; the next one begins."""


@method(85, 10, synchronous=True)
class ConfirmSelect(Method, frozen=True):
    """Have publishes on the channel confirmed (extension of RabbitMQ)."""

    nowait: Bit = False


@method(85, 11)
class ConfirmSelectOk(Method, frozen=True):
    """Publishes are confirmed from now on."""
