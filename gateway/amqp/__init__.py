"""The AMQP 0-9-1 front, its twin: the same names for the same jobs, and five more where AMQP has rules of its own.

connection.py          One client connection.
handshake.py           Opening it: mechanisms, tuning, virtual host.
channel.py             A channel's place in the connection: what waits, what is held, its modes.
dispatch.py            Which call carries out each method.
publish.py             Publishes: together where messages are alike, one by one where they are not.
consume.py             Consuming, getting, qos, acknowledgements, flow.
outbox.py              What is sent to the client; confirms in as few frames as say it.
topology.py            Exchanges, queues and bindings, with RabbitMQ's rules in front of the handlers.
transactions.py        tx.select, tx.commit, tx.rollback.
transaction_buffer.py  What a transactional channel holds until it commits.
direct_reply.py        amq.rabbitmq.reply-to.
arguments.py           Arguments as AMQP clients give them: some mean something here and are kept, streams' are
                       refused, others are ignored.
closing.py             How a connection ends, once one of us closes it.
"""
