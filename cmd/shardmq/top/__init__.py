"""`shardmq top`: a broker and its queues, live.

command.py   `shardmq top`: its options, one snapshot, and the loop on a terminal.
view.py      What is shown of which queues, in which order, and what keys change of it.
page.py      A look as people see it.
keyboard.py  Keys of a terminal, without waiting for Enter.
"""
