"""x-death as columns: what a dead letter died of, where, and when; and which of them are chosen by that.

It is the latest death that counts, the first entry of x-death: it brought the message where it is, and names the
exchange and the routing keys that it is to have again. `time` is when a message first died like that in that queue:
RabbitMQ keeps it when it happens again, and so does shardmq.
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
class Choice:
    """Which dead letters.

    Attributes:
        reason: that they died of, as "rejected"; any when None.
        from_queue: where they died; any when None.
        from_exchange: to which they were published before they died; any when None.
        since: that they died then or later.
        until: that they died before.
    """

    reason: str | None = None
    from_queue: str | None = None
    from_exchange: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    def condition(self) -> "Column":
        """The same of rows with the columns of `deaths`."""
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
    """Dead letters with reason, from_queue, from_exchange, from_keys and died_at, null where nothing is known.

    Args:
        messages: with the column headers.
    """
    from pyspark.sql import functions as F

    # try_element_at counts from 1, and gives null where there is none; what is no such JSON is null, too.
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
    """Dead letters as the data source publishes them: to the exchange and the routing keys they had when they died.

    A message that was published with several keys, by the header CC, has that still, unless its queue's
    x-dead-letter-routing-key took it away: then it becomes a message for each key.

    Args:
        chosen: with the columns of `deaths`, body and headers.
        properties: the raw properties they are to have.
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
