"""Against RabbitMQ, on the same machine.

command.py       `bench compare`.
rows.py          What is measured, round by round, and the ratios.
load.py          The programs that make the load: amqpload.c, which is compiled, and pika_program.py.
pika_program.py  Publishes with pika.
rabbitmq.py      Starts and stops a RabbitMQ of its own.
spark.py         `bench spark`.
spark_sinks.py   The ways of publishing a DataFrame.
"""
