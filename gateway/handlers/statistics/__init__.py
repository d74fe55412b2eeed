"""Lists in pages, filtered and sorted, with counters and rates; one thing in detail; the broker summed up.

    sorted by name      the replica picks the page  ─► shards describe those queues
    sorted by a count   shards name their first K   ─► the gateway merges ─► shards describe those of the page

requests.py      Which list answers what, and who may ask.
paging.py        Filters, order, pages and columns.
entities.py      What the replica of the topology has, in the order of lists.
entity_lists.py  Lists of that: the page is cut before there are rows.
queues.py        Queues, whose shards count them.
clients.py       Connections, channels and consumers of all gateways.
flow.py          What flows through this gateway: counters, sums, rates.
overview.py      The broker, or a virtual host, summed up.
"""
