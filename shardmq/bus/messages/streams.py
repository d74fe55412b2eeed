"""What is read of streams."""

import msgspec


class Reading(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What a consumer reads of a stream.

    Attributes:
        begin: at the "first" message, the "last" batch, the "next" message to come, the "offset" `number`, or the first
            message that came at the "time" `number`, ms since 1970, or later.
        number: an offset is taken as the first message where it was dropped, and as the next where it is to come.
        tags: messages with one of these tags; None for all.
        has_untagged: beside them, messages without a tag.
        is_exact: an offset that was dropped, or is past the next one, is refused (416), and so is one that is dropped
            while it is waited for.
    """

    begin: str
    number: int = 0
    tags: list[str] | None = None
    has_untagged: bool = False
    is_exact: bool = False
