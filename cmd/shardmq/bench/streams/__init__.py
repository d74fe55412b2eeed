"""Streams beside RabbitMQ's and Redis's, on the same machine.

command.py   `bench streams`.
rows.py      What is measured, and the goals.
measure.py   The measurements, turn by turn, and the figures.
sdk.py       The loads of the SDK, and what a long stream takes: to start with it, to find a time in it.
groups.py    Groups: how soon partitions have another owner, what groups cost as they grow, a cursor's memory.
tails.py     A group that reads a topic while it is published to; the memory of partitions.
workers.py   Members of a shared group that work for a while on each message.
redis.py     Starts and stops a Redis of its own.
redisload.c  The C program that puts load on it.
"""
