"""`shardmq bench`: how fast a broker is, measured from outside by producers and consumers in processes of their own.

command.py    the command line, its table and its JSON
settings.py   what is measured, and who publishes what to which queue
producers.py  the producers' processes, one loop for each mode
consumers.py  the consumers' processes
course.py     one course of it: queues, processes, a common start, results, an end in any case
figures.py    rates, percentiles and the check that every message came once
disk.py       how many fdatasync a second the disk does, without which no figure means anything
"""
