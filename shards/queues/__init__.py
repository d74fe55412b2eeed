"""Queues in memory: which messages are ready, unacked or held, in which order.

queue.py               What a shard does with a queue, whatever its kind.
plain_queue.py         A queue without arguments that its messages would notice: one subqueue.
configured_queue.py    A queue with priorities, TTL, length limit, delivery limit, retries or dead letters.
priority_levels.py     Its subqueues, one for each priority in use.
subqueue.py            Messages in order: ready, unacked, held, settled.
tally.py               What became of messages, as statistics tell it apart.
ready_messages.py      Which messages of a subqueue are ready, in which order, and where the next one lies.
delivery.py            Messages that are handed out together.
length_limit.py        x-max-length, x-max-length-bytes, x-overflow.
weighing.py            How many bytes the bodies have of a queue that never counted them.
dead_letter_outbox.py  Messages that died, kept until they have arrived elsewhere.
segment_log.py         The segments of a subqueue: reading, settling, replacing.
compaction.py          Merging small segments, and copying what lives out of sparse ones.
"""
