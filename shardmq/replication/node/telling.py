"""What of a replica's life its process tells in the log."""

import logging
from typing import Final

from shardmq.replication.core.effects import (
    CommandRefused,
    Deposed,
    Effect,
    EtcdBehind,
    Leading,
    Transferred,
    UncleanElection,
)

OUTCOMES: Final = (Transferred, UncleanElection, CommandRefused, EtcdBehind)
"""What is told at once; changes of roles are, when their owner hears of them."""

_log = logging.getLogger(__name__)


def tell(group: str, host: str, effect: Effect) -> None:
    """Tell of a change of roles, or of what became of a command; of other effects, nothing."""
    match effect:
        case Leading():
            _log.info("%s: %s leads term %d", group, host, effect.term)
        case Deposed():
            _log.info("%s: %s no longer leads term %d", group, host, effect.term)
        case Transferred():
            outcome = f"{effect.to} leads" if effect.done else f"{host} goes on; {effect.to} was not ready"
            _log.info("%s: the transfer to %s has ended: %s", group, effect.to, outcome)
        case CommandRefused():
            _log.warning("%s: %s", group, effect.reason)
        case EtcdBehind():
            _log.warning(
                "%s: etcd knows term %d, and %s has promised term %d: etcd was restored from a snapshot, and has "
                "forgotten who held everything; a replica may be elected that lacks what was confirmed since, and the "
                "others copy from it. Keep copies of all data directories until you know that nothing is missing",
                group,
                effect.term,
                host,
                effect.promised,
            )
        case UncleanElection():
            _log.warning(
                "%s: %s is to be elected unclean: it keeps records up to %d, of which those up to %d are known to have "
                "been released; what %s have beyond is lost",
                group,
                host,
                effect.kept,
                effect.released,
                ", ".join(effect.in_sync),
            )
