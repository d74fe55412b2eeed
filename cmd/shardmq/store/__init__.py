"""`shardmq store`: what is done to stores while no broker runs on them.

command.py  the group
compact.py  `shardmq store compact`: files without their free pages
"""
