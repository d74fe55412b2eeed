"""What of a replica's life its process tells in the log."""

import logging

from shardmq.replication.core.effects import (
    CommandRefused,
    Deposed,
    Effect,
    Leading,
    Transferred,
    UncleanElection,
)

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
