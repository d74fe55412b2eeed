"""The redo log in front of a store.

log.py       The log: a small commit with one flush instead of LMDB's two.
recovery.py  What is behind the last entry of a log that can be read: the end of the log, or damage.
"""
