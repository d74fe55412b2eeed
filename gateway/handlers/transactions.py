"""Begin, seal, commit, abort: an attempt is sealed by the shards, all else the coordinator decides.

    begin ─► coordinator       publish … ─► shards       seal ─► every shard, summed       commit, abort ─► coordinator

The coordinator answers a commit in time, also where a shard still reads what was staged, or has yet to follow the
decision; a client that commits again waits on, or hears whether it is visible.
"""

from typing import Any, Final

from shardmq.bus.coordinator_link import Reply
from shardmq.bus.messages.transactions import Seal
from shardmq.errors import AccessRefused
from shardmq.gateway.handlers.replies import done, from_all, shaped
from shardmq.gateway.session.channel import Channel
from shardmq.gateway.session.client import Client
from shardmq.limits import TRANSACTION_TIMEOUT_MS
from shardmq.protocol.native.operations.transaction import (
    TransactionAbort,
    TransactionBegin,
    TransactionCommit,
    TransactionSeal,
)
from shardmq.topology.commands import AbortTransaction, BeginTransaction, CommitTransaction
from shardmq.topology.entities import RESERVED_TRANSACTIONS, SHOVEL_TRANSACTIONS, check_name

NOUN: Final = "transaction"


def transaction_begin(channel: Channel, operation: TransactionBegin, reply: Reply) -> None:
    """Begin a transaction, or find the one of that name.

    Raises:
        InvalidRequest: the name is not valid.
        AccessRefused: the name is reserved for gateways, or for shovels.
    """
    client, name = channel.client, operation.transaction
    check_name(NOUN, name)
    _check_unreserved(client, name)

    def shape(begun: tuple[int, bool]) -> dict[str, Any]:
        number, is_committed = begun
        return {"number": number, "state": "committed" if is_committed else "open"}

    timeout_ms = operation.timeout_ms or TRANSACTION_TIMEOUT_MS
    client.perform(
        BeginTransaction(client.vhost, name, client.user, timeout_ms, operation.number), shaped(reply, shape)
    )


def transaction_seal(channel: Channel, operation: TransactionSeal, reply: Reply) -> None:
    """Seal an attempt on every shard; the result is what it has on all of them together.

    Sealing twice has the effect of once: a client that hears that a shard did not answer in time asks again.

    Raises:
        PreconditionFailed: the transaction is over, or never was.
        AccessRefused: somebody else began it.
        Unavailable: it is not known here, and the coordinator is away.
    """
    state = channel.client.state
    channel.client.check_transaction(operation.number)

    def join(sums: list[tuple[int, int]]) -> dict[str, Any]:
        return {"messages": sum([messages for messages, _ in sums]), "bytes": sum([size for _, size in sums])}

    take = from_all(len(state.links), reply, join)
    for link in state.links:
        link.ask(Seal(operation.number, operation.attempt), take)


def transaction_commit(channel: Channel, operation: TransactionCommit, reply: Reply) -> None:
    """Commit what these attempts staged, by the coordinator's decision.

    Raises:
        InvalidRequest: the name is not valid.
        AccessRefused: the name is reserved for gateways, or for shovels.
    """
    client, name = channel.client, operation.transaction
    check_name(NOUN, name)
    _check_unreserved(client, name)
    command = CommitTransaction(client.vhost, name, operation.number, _decider(client), operation.attempts)
    client.perform(command, shaped(reply, lambda visible: {"visible": visible}))


def transaction_abort(channel: Channel, operation: TransactionAbort, reply: Reply) -> None:
    """Abort a transaction, by the coordinator's decision.

    Raises:
        InvalidRequest: the name is not valid.
    """
    client, name = channel.client, operation.transaction
    check_name(NOUN, name)
    client.perform(AbortTransaction(client.vhost, name, operation.number, _decider(client)), done(reply))


def _check_unreserved(client: Client, name: str) -> None:
    if client.is_administrator and name.startswith(SHOVEL_TRANSACTIONS):
        return
    if name.startswith(RESERVED_TRANSACTIONS):
        raise AccessRefused(
            f"transaction name '{name}' contains reserved prefix '{RESERVED_TRANSACTIONS}*'; choose another name"
        )


def _decider(client: Client) -> str:
    """Whose transaction it has to be; "" where anybody's will do."""
    return "" if client.is_administrator else client.user


REQUESTS: Final[dict[type[Any], Any]] = {
    TransactionBegin: transaction_begin,
    TransactionSeal: transaction_seal,
    TransactionCommit: transaction_commit,
    TransactionAbort: transaction_abort,
}
