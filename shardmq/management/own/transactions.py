"""Transactions that nobody has decided about: what is staged for them, and how one is given up."""

from typing import Final

from shardmq.management.web.call import Call, Row
from shardmq.management.web.endpoint import NO_CONTENT, Answer, Endpoint, Right
from shardmq.management.web.listing import listed


async def list_transactions(call: Call) -> Answer:
    """The undecided transactions of all virtual hosts that the caller may see."""
    return Answer(listed(await call.rows("transactions"), call.query))


async def abort(call: Call) -> Answer:
    """Give up a transaction: what was published in it never appears."""
    vhost, name = await call.vhost(), call.part("name")
    row = await call.row("transactions", vhost, name)
    channel = await call.channel(vhost)
    await channel.transaction_abort(row["name"])
    return NO_CONTENT


ENDPOINTS: Final = (
    Endpoint(
        "GET",
        "/shardmq/transactions",
        list_transactions,
        Right.MANAGEMENT,
        "Transactions that nobody has decided about.",
        list[Row],
        is_list=True,
    ),
    Endpoint("DELETE", "/shardmq/transactions/{vhost}/{name}", abort, Right.MANAGEMENT, "Give up a transaction.", None),
)
"""What this file answers."""
