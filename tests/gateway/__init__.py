"""The gateway over real processes, spoken to in raw frames.

rawclient.py            a client that says what it likes and sees every answer
stage.py                a gateway whose coordinator and shards are played by the test, over the real bus
test_bad_input.py       clients that misbehave
test_session.py         acknowledgements and windows
test_publishing.py      publishes message by message: parts, returns, confirms, partial refusals
test_dead_letters.py    what is written into dead letters, where they go, what shards are told
test_alarms.py          publishers that are blocked, and what goes on meanwhile
test_returning.py       renewals, delayed returns, tags of what came back overdue
test_status.py          the status of several gateways
test_tags.py            delivery tags as ranges
test_prefetch.py        what waits for room within the limit of a channel
test_rights.py          what permissions allow
test_administration.py  virtual hosts, users, permissions, limits, for administrators
test_presence.py        exclusive queues, and connections whose user, virtual host or right to be goes
test_lists.py           lists of what there is, and of who is connected at any gateway
test_definitions.py     definitions of RabbitMQ's shape, both ways
test_tls.py             TLS on the clients' port
test_declarations.py    declarations with everything, server-named queues, peeking, recovering
"""
