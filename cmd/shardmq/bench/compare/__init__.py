"""Against RabbitMQ, on the same machine.

command.py       `bench compare`.
rows.py          What is measured, round by round, and the ratios.
load.py          The programs that load: amqpload.c is compiled, pika is run.
pika_program.py  The one of pika's.
rabbitmq.py      A RabbitMQ of the bench's own.
spark.py         `bench spark`.
spark_sinks.py   What a DataFrame is published by.
"""
