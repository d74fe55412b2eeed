"""`shardmq bench`: how fast a broker is, measured from outside by producers and consumers in processes of their own.

command.py    the command line, its table and its JSON
settings.py   what is measured, and who publishes what to which queue
producers.py  the producers' processes, one loop for each mode
consumers.py  the consumers' processes
course.py     one course of it: queues, processes, a common start, results, an end in any case
figures.py    rates, percentiles and the check that every message came once
features.py   `bench features`: what TTL, priority, dead letters and limits cost
crowd.py      `bench queues`: thousands of queues and connections
clients.py    the processes that hold those connections
delays.py     `bench delays`: a million delayed messages
spark.py           `bench spark`: a DataFrame published, in turns
spark_sinks.py     what it is published by
compare.py         `bench compare`: shardmq and RabbitMQ, loaded by the same AMQP clients
compare_rows.py    what is measured, round by round, and the ratios
compare_load.py    the programs that load: amqpload.c is compiled, pika is run
compare_pika.py    the one of pika's
rabbitmq.py        a RabbitMQ of the bench's own
disk.py       how many fdatasync a second the disk does, without which no figure means anything
"""
