"""What a source and a destination can do."""

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from shardmq.shovels.message import ShovelMessage


class Source(Protocol):
    """Where messages come from."""

    ready: int
    """How many messages were ready when it was opened."""

    def batches(self) -> AsyncIterator[Sequence[ShovelMessage]]:
        """Messages as they come, for ever."""

    def ack(self, tag: int) -> None:
        """Acknowledge a message, and all that came before it."""

    async def close(self) -> None:
        """Send the acknowledgements, and close; what is not acknowledged returns."""


class Destination(Protocol):
    """Where messages go."""

    async def publish(self, message: ShovelMessage) -> None:
        """Publish a message; waits while many are not confirmed."""

    async def flush(self) -> None:
        """Wait until all that was published is confirmed.

        Raises:
            ShardmqError: something of it was not taken.
        """

    def check(self) -> None:
        """Make sure that it is there.

        Raises:
            ShardmqError: why it is not.
        """

    async def close(self) -> None:
        """Close it."""
