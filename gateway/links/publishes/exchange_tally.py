"""What was published to one exchange."""


class ExchangeTally:
    """What clients of this gateway published to one exchange, since the gateway started.

    Attributes:
        published: messages that came.
        routed: messages that went on, one for each queue.
    """

    __slots__ = ("published", "routed")

    def __init__(self) -> None:
        self.published = self.routed = 0

    def count(self, messages: int, queues: int) -> None:
        """Count messages that went to so many queues each."""
        self.published += messages
        self.routed += messages * queues

    @property
    def counts(self) -> tuple[int, int]:
        """Both."""
        return self.published, self.routed
