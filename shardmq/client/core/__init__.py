"""The protocol core: no sockets, threads or event loop.

connection.py        One connection over all its lives: requests in, frames out.
introduction.py      What a program says of itself when it connects.
state.py             What a connection knows, and the small steps its parts share.
dispatch.py          What the server says, and whom that settles.
restore.py           The order in which a reconnected connection is made as it was.
channel.py           What the core keeps of a channel, and of what was asked and published until it is answered.
groups/              Consumers of groups: their partitions, what they have handed out.
calls.py             The calls of a channel that wait for an answer, and the consumer of their answers.
transaction.py       A transaction's attempt: what is staged, and the steps of its life.
declarations.py      What was declared, and is declared again after a loss.
requests/            Requests as values: checked, ready to be sent, and what their answers become.
validation.py        What a program hands in, checked before it is sent.
batching.py          Record batches made of what is published: sizes and checks.
publishing/          Single publishes until they are sent as batches.
acknowledgements.py  Acks and nacks on their way, as ranges of delivery tags; RabbitMQ's verbs for them.
interfaces.py        What the core asks of those around it: replies, confirms, inboxes, observers.
"""
