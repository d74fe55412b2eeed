"""Spark and the broker together: what needs no session of Spark's, and what needs one.

proxy.py     loses what it is told to lose between clients and a gateway
session.py   Spark in the process of the tests
cluster.py   a standalone cluster of two workers
archive.py   Spark's classes as Java has loaded them, and Java's options
"""
