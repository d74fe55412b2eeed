"""The process that runs shovels: they move messages between queues, exchanges and brokers, whatever is killed.

process.py          Options, start, stop.
keeper.py           Runs the shovels that the broker has parameters for, and reports their states.
shovel.py           One shovel: opens the ends of its URIs, moves, waits after a fault, tries again.
transfer.py         Moves messages from a source to a destination.
local.py            Moves messages inside this broker, each exactly once.
ends.py             What a source and a destination can do.
native.py           Ends over the native protocol: of this broker, and of others.
amqp.py             Ends over AMQP 0-9-1: of any broker.
amqp_connection.py  A client's connection over AMQP 0-9-1, with one channel.
message.py          A message on its way, and what a shovel writes into it.
"""
