"""What exists in pages, filtered and sorted, with counters and rates.

For users with a tag: "management" and "policymaker" see the virtual hosts that they have a permission in, and their own
connections; "monitoring" and "administrator" see all (RabbitMQ's rule). Others are refused (403).
"""

from typing import Annotated

from msgspec import Meta

from shardmq.limits import FINDINGS_TOLD_MAX, LIST_COLUMNS_MAX, LIST_PAGE_MAX
from shardmq.protocol.native.operations.fields import AfterLoss, Arguments, ClientRequest, Name


class StatsList(ClientRequest, frozen=True):
    """List things of one kind. The answer is Ok: `{"items", "page", "page_size", "page_count", "item_count", …}`.

    Attributes:
        noun: "queues", "exchanges", "bindings", "topics", "groups", "vhosts", "users", "connections", "channels" or
            "consumers".
        vhost: their virtual host; nil for all that the user may see.
        name: only those whose name contains this, whatever the case; "" for all.
        use_regex: whether `name` is a regular expression.
        sort: the column to sort by, dotted where it is in a table, as "rates.publish"; "" for the name.
        reverse: whether the largest come first.
        page: from 1 on; 0 for everything on one page.
        page_size: items of a page.
        columns: those wanted, dotted where they are in a table; [] for all.
        with_statistics: whether queues are to have what their shards count.
    """

    after_loss = AfterLoss.ASK_AGAIN
    only_reads = True

    noun: Name
    vhost: Name | None = None
    name: Name = ""
    use_regex: bool = False
    sort: Name = ""
    reverse: bool = False
    page: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 0
    page_size: Annotated[int, Meta(ge=1, le=LIST_PAGE_MAX)] = 100
    columns: Annotated[list[Name], Meta(max_length=LIST_COLUMNS_MAX)] = []
    with_statistics: bool = True


class StatsGet(ClientRequest, frozen=True):
    """Describe one thing in detail. The answer is Ok: its table; refused (404) where it does not exist.

    `vhost` is "" for what is in no virtual host: connections, channels, virtual hosts and users.
    """

    after_loss = AfterLoss.ASK_AGAIN
    only_reads = True

    noun: Name
    vhost: Name
    name: Name


class StatsOverview(ClientRequest, frozen=True):
    """Sum up the broker, or a virtual host. The answer is Ok: a table.

    `vhost` is nil for all that the user may see. With `is_detailed` it has what processes measure of themselves, for
    users who see all.
    """

    after_loss = AfterLoss.ASK_AGAIN
    only_reads = True

    vhost: Name | None = None
    is_detailed: bool = False


class FindingsTell(ClientRequest, frozen=True):
    """Publish that something is found wrong with the broker, or no more, as events. The answer is Ok: `{"is_heard"}`.

    For users with the tag "monitoring" or "administrator"; others are refused (403).

    Attributes:
        findings: whether each begins or ends, and what is told of it; [] to ask whether anybody would hear it.
    """

    findings: Annotated[list[tuple[bool, Arguments]], Meta(max_length=FINDINGS_TOLD_MAX)]
