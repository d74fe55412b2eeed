"""What the coordinator's handlers share."""

from dataclasses import dataclass

from shardmq.coordinator.links.shard import ShardLink
from shardmq.coordinator.rules.shard_identity import BrokerIdentity
from shardmq.coordinator.state.promises import Promises
from shardmq.coordinator.state.returning import Returning
from shardmq.coordinator.state.transactions import TransactionState
from shardmq.coordinator.storage.store import Store
from shardmq.topology.topology import Topology


@dataclass(frozen=True, slots=True)
class CoordinatorState:
    """What the coordinator knows, keeps and talks to.

    Attributes:
        identity: whose coordinator it is, and the generation of this start.
        topology: the authority on what exists.
        store: where changes are written before anybody is told.
        shards: the links to all shards, by number; they may become more.
        transactions: what is known of transactions beside the topology.
        promises: whether enough replicas have what an answer would promise.
        returning: gateways of an earlier life that are still to call again; nothing is answered before.
    """

    identity: BrokerIdentity
    topology: Topology
    store: Store
    shards: list[ShardLink]
    transactions: TransactionState
    promises: Promises
    returning: Returning
