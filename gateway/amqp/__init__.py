"""AMQP 0-9-1, as every RabbitMQ client speaks it: a second front of the same sessions and channels.

connection.py  one connection: channels, frames to session calls and back, who hangs up
opening.py     a connection on its way to being open
handshake.py   what is agreed on meanwhile: mechanisms, limits, properties
channel.py     one channel's place in the connection: what waits, what is held, its modes
declarations.py  methods about exchanges, queues, bindings
arguments.py   arguments that mean something here, and those that are ignored
consuming.py   methods about consumers, deliveries, acknowledgements
publishing.py  what is published: routed in runs where messages are alike, one by one where they are not
transactions.py  tx.select, tx.commit, tx.rollback: what a channel holds until it is committed
replies.py     amq.rabbitmq.reply-to: where answers to a channel's requests come, without a queue of its own
confirming.py  what clients are told of their publishes, in as few frames as say it
sending.py     frames out: methods, contents, deliveries by the run
packing.py     records of messages that came by AMQP, packed and unpacked by the run
crossing.py    messages between native and AMQP clients
frames.py      frames in: bytes to what they say
methods.py     the methods as a table, and their codec
domains.py     what a method's fields may be, and how each is read and written
properties.py  property lists: checked, read, written
tables.py      field tables and their values
faults.py      errors, as AMQP has them
"""
