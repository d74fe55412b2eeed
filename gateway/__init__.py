"""The gateway process: speaks with clients, routes what they publish, and carries bytes between them and the shards.

process.py    the process: options, start, signals, clean stop
hub.py        what all connections of the process share: topology replica, links, the pass
server.py     listens, accepts, knows the connections
connection.py  one client's connection, whatever its protocol: the socket, what waits to be sent, when not to read
doorway.py     a socket that has not said yet which protocol it speaks
logins.py      who may come in
suspicion.py   who has failed to log in lately, and what follows from that
turnstile.py   how many passwords are tried at once, for each source and user
hashing.py     passwords compared with their hashes, on few threads, in a fair order
refusals.py    logins that were refused: counted, and logged without filling the disk
amqp/          one client connection speaking AMQP 0-9-1
native.py     one client connection speaking the native protocol: frames to session calls and back
requests.py   the native protocol's requests as a table: operation to call; those about messages
declarations.py  requests about exchanges, queues, bindings
listing.py    requests that look: lists of what there is, the status
rows.py       what exists, as rows of lists and definitions
transactions.py  requests about transactions: begin, seal, commit, abort
snapshots.py   requests by which a queue is read in parallel: slices, reading, reservations
administration.py  requests for administrators: virtual hosts, users, permissions, limits, definitions
answers.py    replies put together: shapes, several questions with one answer, many commands with one outcome
clients.py    lists of connections, channels, consumers, here and at other gateways
definitions.py  definitions in RabbitMQ's shape: writing them
importing.py  definitions in RabbitMQ's shape: reading them, as a plan of commands
presence.py   who is connected: told to the coordinator, parted from when what it needs is gone
tls.py        TLS for clients: options, context
rights.py     what a user may do in a virtual host
turns.py      what takes long for one connection is done in pieces, and the others are served in between
loans.py      room for large messages, lent to connections within limits
borrowing.py  a channel's side of that: what is large comes when there is room
pace.py       commands of one connection: so many under way, the others in their order
checking.py   large publishes of native clients, checked in slices
session.py    one client's connection, whatever its protocol: who it is, its channels
channel.py    one channel: publishing and confirms, consumers and deliveries, acknowledgements
tags.py       delivery tags of a channel, kept as ranges
prefetch.py   one limit for what all consumers of a channel hold together
publishing.py  publishes whose messages differ, cut into parts that go the same way on the same terms
confirms.py   publishes on their way to one shard: runs being gathered, confirms due
commits.py    what a channel gathered, published and settled together or not at all
deadletters.py  what died in a queue is published to its dead-letter exchange, its death written into it
alarms.py     who runs short of memory or disk, and connections that are to wait for it
shardlink.py  one shard as seen from here: consumers, requests, dead letters, alarms
topologylink.py  the coordinator as seen from here: commands under way, changes coming in
status.py     the broker's state, gathered from every process
"""
