"""How many logins there were since they were last reset here."""

from typing import Any, Final

Row = dict[str, Any]
Counts = dict[str, dict[str, int]]

KINDS: Final = ("succeeded", "failed")
"""How logins end."""


class LoginCounts:
    """Logins by protocol, from gateways' counts, which never go back; those at the last reset are taken off them."""

    def __init__(self) -> None:
        self._at_reset: dict[tuple[str, int], Counts] = {}

    def reset(self, processes: list[Row]) -> None:
        """Begin at 0.

        Args:
            processes: of the broker, as its overview tells of them.
        """
        self._at_reset = {(row["process"], row["pid"]): row["logins"] for row in processes if "logins" in row}

    def since(self, processes: list[Row]) -> Counts:
        """By protocol, how many logins succeeded and failed since the reset; a gateway started since begins at 0."""
        found: Counts = {}
        for row in processes:
            before = self._at_reset.get((row["process"], row["pid"]), {})
            for protocol, counts in row.get("logins", {}).items():
                sums = found.setdefault(protocol, dict.fromkeys(KINDS, 0))
                for kind in KINDS:
                    sums[kind] += counts[kind] - before.get(protocol, {}).get(kind, 0)
        return found
