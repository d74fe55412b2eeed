"""What came of a job of the pipeline."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What came of a job.

    Attributes:
        job: "publish", "export", "replay" or "deadletters".
        rows: that this run was about: none where an earlier one has done it all.
        messages: published by it, or acknowledged.
        bytes: of the bodies of these rows.
        seconds: from its start to its end, without the start of Spark.
        transaction: under whose name it published, or reserved, for running it again; "" where there was none.
        queues: where the messages lie, and how many messages each of these queues has ready now.
        notes: what else is to be known, a sentence each.
    """

    job: str
    rows: int = 0
    messages: int = 0
    bytes: int = 0
    seconds: float = 0.0
    transaction: str = ""
    queues: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def rows_per_s(self) -> float:
        """Rows a second."""
        return round(self.rows / self.seconds, 1) if self.seconds else 0.0

    def as_table(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return {**asdict(self), "seconds": round(self.seconds, 3), "rows_per_s": self.rows_per_s}
