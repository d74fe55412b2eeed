"""Every limit of the broker, each beside its reason."""

from typing import Final

FRAME_BYTES_MAX: Final = 32 << 20
"""One frame of the native protocol, where messages may not be so large that they need more: `frame_bytes_max`."""

HELLO_BYTES_MAX: Final = 16 << 10
"""A frame of somebody who is not let in yet. Decoded, a byte may take 70 (an empty table): strangers get no more."""

REQUEST_BYTES_MAX: Final = 128 << 10
"""Frames that carry neither messages, acknowledgements nor definitions; RabbitMQ's default `frame_max`, which a method
has to fit into."""

SETTLEMENT_BYTES_MAX: Final = 2 << 20
"""One frame of acknowledgements: some 100,000 ranges at least."""

PROPERTIES_BYTES_MAX: Final = 128 << 10
"""The properties of one message. Theirs is one frame in AMQP, and so no more than RabbitMQ's default `frame_max`."""

RECORD_BATCH_PROPERTIES_BYTES_MAX: Final = 4 << 20
"""The properties of all messages of one publish: decoded they may take 70 times as much memory."""

MESSAGE_BYTES_MAX: Final = 16 << 20
"""A message's body, unless a broker is told otherwise (`--message-size-max`); the default of RabbitMQ 4, counted as
there: properties have a limit of their own."""

MESSAGE_BYTES_HIGHEST: Final = 512 << 20
"""What it may be told at most; RabbitMQ's own highest. What depends on the size of messages derives from the limit."""


def frame_bytes_max(message_bytes_max: int) -> int:
    """One frame of the native protocol that carries messages: the largest one fits with its properties."""
    return max(FRAME_BYTES_MAX, message_bytes_max + (1 << 20))


RECORD_BATCH_RECORDS_MAX: Final = 65_536
"""Records in one publish. Keeps the work done for one frame short, so that others are served in between."""

NAME_BYTES_MAX: Final = 255
"""Names and routing keys, in UTF-8 bytes: AMQP's short string."""

SHARDS_MAX: Final = 1024
"""Shards of a broker. Each is a process, to which every gateway has a link."""

CHANNELS_MAX: Final = 2047
"""Channels open on one connection; RabbitMQ's default `channel_max`."""

PREFETCH_MAX: Final = 65_535
"""AMQP's prefetch-count is 16 bits wide."""

DELAY_MS_MAX: Final = 2**32 - 1
"""Delays, leases and timeouts, in milliseconds: some 49 days."""

LIFE_MS_MAX: Final = 3650 * 24 * 3600 * 1000
"""Times to live of messages and queues, in milliseconds: RabbitMQ's limit, ten years."""

FRAMED_PRODUCERS: Final = 2**62
"""Producers from here on send again in the same frames, as channels of the SDK do: a gateway may number the messages of
one frame in an order of its own. Those below, which outlive programs, frame their messages as they like each time."""

KEYED_NUMBERS: Final = 2**14
"""Numbers that each message takes of its producer where the messages of a publish have keys of their own: as many as a
topic may have partitions, and more. A gateway numbers those messages partition by partition, and with each number of
partitions differently: no number ever stands for two messages, even if a topic gets partitions between two tries."""

LETTER_PRODUCERS: Final = 2**63
"""Producers from here on are queues whose dead letters go elsewhere. No client may name one."""

TRANSACTION_TIMEOUT_MS: Final = 24 * 3600 * 1000
"""How long a transaction may stay undecided unless it says otherwise. Longer than jobs take: one that outlives it is
lost, as Kafka's users know, whose default is a minute."""

OFFSETS_TIMEOUT_MS: Final = 60_000
"""The same for one that commits offsets of a group: while it is being decided, nobody else is given the partitions. It
begins anew with each commit of offsets in it. As Kafka's transaction.timeout.ms."""

TRANSACTIONS_MAX: Final = 10_000
"""Transactions undecided at once; every gateway knows them all."""

ATTEMPTS_MAX: Final = 65_536
"""Attempts that one commit may name: Spark jobs have thousands of partitions, not millions."""

COMMITTED_KEPT_MS: Final = 7 * 24 * 3600 * 1000
"""How long the name of a committed transaction is remembered, so that committing it again does nothing; Kafka's
`transactional.id.expiration.ms`."""

RESERVED_KEPT_MS: Final = 10 * 60 * 1000
"""The same, of one that a gateway made for AMQP's tx.commit: it asks again for as long as its client waits, seconds."""

SHOVEL_KEPT_MS: Final = 2 * 3600 * 1000
"""The same, of one by which a shovel moves: twice as long as its messages stay reserved (RESERVATION_MS)."""

SLICES_MAX: Final = 4096
"""Slices that a queue is cut into for reading it in parallel."""

SEARCH_FOUND_MAX: Final = 1000
"""Messages that one answer to a search brings; who wants more searches on."""

RANGES_MAX: Final = 4096
"""Ranges of messages that one answer to a search for dead letters has, and that one request reserves: it fits a frame
of 128 KiB."""

RESERVATION_MS: Final = 3600 * 1000
"""How long messages are reserved unless it is said otherwise."""

PULL_BYTES: Final = 1 << 20
"""Records of messages that a pull brings unless it says otherwise."""

PULL_BYTES_MAX: Final = 16 << 20
"""The most it may ask for; a message that is larger comes alone."""

PULL_WAIT_MS_MAX: Final = 60_000
"""How long a pull may wait for messages; longer than proxies keep silent connections, and shorter than users wait."""

PULLS_MAX: Final = 1024
"""Pulls of one channel that are not answered yet."""

OFFSETS_FROM: Final = 2**62
"""An attempt of a transaction numbers the offsets that it commits from here on, above all its messages."""

HANDSHAKE_SECONDS: Final = 10.0
"""From accept to an open connection; RabbitMQ's `handshake_timeout`."""

HEARTBEAT_SECONDS: Final = 60
"""Proposed interval between signs of life; a peer silent for two of them is dead. RabbitMQ's default."""

DELIVERY_WINDOW_BYTES: Final = 2 << 20
"""Bytes on their way from a shard to one consumer's socket; bounds a gateway's memory when a client reads slowly."""

DELIVERY_WINDOWS_BYTES: Final = 8 << 20
"""The n-th consumer of a connection has a window of an n-th part of it at most, unless it is one of the first thousand.
However many there are, what waits for a client that does not read is some sixteen times as much (1,000 consumers:
90 MB, 100,000: 130 MB)."""

LEAST_WINDOW_BYTES: Final = 64 << 10
"""The window of a consumer that is one of a connection's first LEAST_WINDOWS is not smaller: a record batch of 500
messages of 100 bytes fits. Of 1,000 consumers half had less than 16 KB, and each batch was cut into four or more, each
of which waited for credit (bulk to 1,000 queues: 1.22 µs of the broker's processor a message, and 0.85 so)."""

LEAST_WINDOWS: Final = 1000
"""Consumers of a connection that have such a window."""

LOANS_BYTES: Final = 32 << 20
"""Messages that do not fit into their consumer's window, on their way to one connection or unread there: so many bytes
of all its consumers together, or one message."""

LOANS_ARRIVING_BYTES: Final = 16 << 20
"""Such messages on their way from shards to one gateway: so many bytes, or one message. Each takes a gateway some 20 ms
(15 MB), in which it serves nobody else."""

LOANS_SHARE: Final = 8
"""Such messages take this part of a gateway's memory watermark at most, whatever the number of connections."""

UNREAD_SHARE: Final = 8
"""Where clients that do not read have this part of a gateway's memory watermark waiting for them together, nothing more
is carried out for them until they read, however little each has."""

WINDOWS_SHARE: Final = 24
"""The n-th consumer of a gateway has a window of an n-th part of that share of its memory watermark at most: those of
5,000 consumers together take three eighths of it, of 100,000 half."""

GET_BYTES: Final = 64 << 10
"""A message up to this size is got at once; for a larger one there has to be room first, as for consumers."""

GETS_BYTES: Final = 16 << 20
"""What the basic.gets of all channels of a connection get at once, together."""

DELIVERY_CREDIT_SHARE: Final = 4
"""A gateway gives credit back when a quarter of the window has reached the socket. Up to so much may be missing from a
window with nothing under way."""

PUBLISH_WINDOW_BYTES: Final = 32 << 20
"""Bytes a gateway has handed to one shard without a confirm; past it, the publishing sockets are not read."""

SHARD_MEMORY_BYTES: Final = 16 << 20
"""Message bodies a shard keeps in memory; older ones are read back from disk. What flows never gets that far."""

LINK_PING_SECONDS: Final = 1.0
"""A link with nothing to say sends a ping this often."""

LINK_SILENCE_SECONDS: Final = 10.0
"""A peer silent for this long is taken for dead, though its socket may be open (SIGSTOP, a hung disk)."""

HANDOVER_SECONDS: Final = 5.0
"""So long publishes wait in a gateway for their shard to be led by another host. A transfer takes 0.1 s, an election
up to 3 s; who was to lead may have died since."""

DECLARE_SECONDS: Final = 15.0
"""A declaration waits this long for the coordinator, the shard and every live gateway. Longer than a link's silence,
so that a dead gateway is dropped before a declaration is given up."""

LIST_PAGE_MAX: Final = 500
"""Items on a page of a list; RabbitMQ's limit."""

FINDINGS_TOLD_MAX: Final = 100
"""Events of findings in one request: each is a message."""

LIST_COLUMNS_MAX: Final = 100
"""Columns that a list is asked for."""
