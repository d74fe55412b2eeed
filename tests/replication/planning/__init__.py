"""Planning.

broker.py   A broker on several hosts as a model.
"""
