"""x-death as columns: what a dead letter died of, where and when; and filters on these columns.

The latest death counts, which is the first entry of x-death: it brought the message to the dead-letter queue, and
names the exchange and routing keys to republish it with. Its `time` is when the message first died for that reason in
that queue: as in RabbitMQ, later deaths of the same kind do not change it.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_X_DEATH: Final = (
    "array<struct<count: bigint, reason: string, queue: string, time: string, exchange: string, "
    "`routing-keys`: array<string>>>"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterFilter:
    """Which dead letters a job is about. None stands for any.

    Attributes:
        reason: what they died of, such as "rejected".
        from_queue: the queue they died in.
        from_exchange: the exchange they were published to before they died.
        since: they died then or later.
        until: they died before.
    """

    reason: str | None = None
    from_queue: str | None = None
    from_exchange: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    def condition(self) -> "Column":
        """The filter as a condition on rows with the columns of `deaths`."""
        from pyspark.sql import functions as F

        condition = F.lit(True)
        for column, value in (("reason", self.reason), ("from_queue", self.from_queue)):
            if value is not None:
                condition &= F.col(column) == value
        if self.from_exchange is not None:
            condition &= F.col("from_exchange") == self.from_exchange
        if self.since is not None:
            condition &= F.col("died_at") >= F.lit(self.since)
        if self.until is not None:
            condition &= F.col("died_at") < F.lit(self.until)
        return condition


def deaths(messages: "DataFrame") -> "DataFrame":
    """Add the columns reason, from_queue, from_exchange, from_keys and died_at, null where nothing is known.

    Args:
        messages: dead letters with the column headers.
    """
    from pyspark.sql import functions as F

    # try_element_at counts from 1 and gives null where there is no element; other JSON becomes null as well.
    death = F.try_element_at(F.from_json(F.col("headers")["x-death"], _X_DEATH), F.lit(1))
    known = messages.withColumn("death", death)
    return known.withColumns(
        {
            "reason": F.col("death.reason"),
            "from_queue": F.col("death.queue"),
            "from_exchange": F.col("death.exchange"),
            "from_keys": F.coalesce(F.array_distinct("death.routing-keys"), F.array().cast("array<string>")),
            "died_at": F.try_to_timestamp("death.time"),
        }
    ).drop("death")


def republished(chosen: "DataFrame", properties: "Column") -> "DataFrame":
    """Make dead letters rows that the data source publishes to the exchange and routing keys they had when they died.

    A message that was published with several keys, by the header CC, is published once with that header. Where its
    queue's x-dead-letter-routing-key removed the header, it becomes a message for each key.

    Args:
        chosen: dead letters with the columns of `deaths`, body and headers.
        properties: the raw properties to publish them with.
    """
    from pyspark.sql import functions as F

    first = F.slice("from_keys", 1, 1)
    keys = F.when(F.col("headers")["CC"].isNotNull(), first).otherwise(F.col("from_keys"))
    return chosen.select(
        F.col("body").alias("value"),
        F.col("from_exchange").alias("exchange"),
        F.explode_outer(keys).alias("routing_key"),
        properties.alias("raw_properties"),
    )
