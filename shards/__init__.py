"""A shard: owns its queues completely, and their store. One process, one writer, no locks.

process.py     options, start, signals, the loop, the end
worker.py      one pass: what has come is applied, deliveries decided, all of it committed, then answered
holdings.py    the queues of the shard, what belongs to each, and who has called
quarantine.py  queues out of service, as something stored of them is damaged
publishing.py  publishes: to queues at once or later, once each
consuming.py   consumers and what they do with what they got
commits.py     publishes and settlements that are carried out together or not at all
administration.py  queues come and go, are counted, looked into, emptied
identity.py    whose the store is
enrolment.py   whom the shard listens to, and who recognises it
copies.py      its part in a backup
reservations.py  messages set aside under a name, for a time
snapshots.py   queues cut into slices, and looked through without a trace
agenda.py      what is to be done when
slices.py      what is too much for one pass
timers.py      delayed publishes and parked messages
transactions.py  publishes that wait for a decision: staged, sealed, in their queues or gone
attempts.py    what an attempt of a transaction has staged
producers.py   who published what before, so that it is stored once
timeouts.py    when what a consumer holds is overdue
deadletters.py dead letters on their way to their next home
alarms.py      watermarks of memory and disk
queue.py       what a worker does with a queue, whatever kind of queue it is
queues.py      which kind of queue a declaration asks for
plain.py       the plain queue: one lane, and no terms that its messages would notice
termed.py      the queue with terms: priorities, times to live, bounds, delivery limits, dead letters
lane.py        messages in a row: what is ready, in which order, what was handed out, what is done with
shelf.py       the segments of a lane: what is read, what is done with, what replaces them
lanes.py       the lanes of a queue with terms, one for each priority in use
bounds.py      how many messages and bytes may wait in a queue
deaths.py      dead letters on their way out
counts.py      how often messages were delivered in vain
stored.py      what a start finds of each queue
consumers.py   consumers, their credit, and whose turn it is
segments.py    the unit of storing; which bodies are in memory; cutting runs
journal.py     what a pass has changed, and its one commit
store.py       the LMDB store
key_check.py   whether its keys are what was written, before bodies are read
decoding.py    what its small rows say
layout.py      how it lies there: databases, keys, values
writes.py      what a start finds there, and what a pass writes to it
closed.py      a store that no process has open: read without a change, and repaired
checkup.py     a whole look through one
inspection.py  queues, and the marks of their lanes; what such a look knows
inspection_segments.py  segments: entries and messages
inspection_staged.py    what transactions have staged
inspection_rows.py      delayed messages, producers, reservations, notes
mapping.py     the pages of it that are mapped into this process
redo.py        its redo log: small commits with one flush
redo_scan.py   what is behind the last entry of it that can be read: its end, or damage
collector.py   keeping segments few and full: merging small ones, copying what lives out of sparse ones
"""
