"""Against RabbitMQ, on the same machine.

backlog_program.py  Fills a queue, and starts the broker again.
command.py          `bench compare`.
rows.py             What is measured, and the goals.
comparison.py       The measurements, turn by turn, and the figures.
load.py             The programs that make the load: amqpload, which is compiled, pika_program.py, the SDK, Spark.
amqpload/           The C program.
pika_program.py     Publishes with pika.
rabbitmq.py         Starts and stops a RabbitMQ of its own.
growth.py           `bench growth`: what a message costs as something grows.
record.py           Results as files, from which the documents' tables and plots are made.
spark.py            `bench spark`.
spark_sinks.py      The ways of publishing a DataFrame.
spark_sources.py    The ways of reading a topic.
"""
