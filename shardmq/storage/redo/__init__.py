"""The redo log in front of a store.

edits.py     The payload of an entry: the edits of one commit.
log.py       The log: a small commit with one flush instead of LMDB's two.
recovery.py  What is behind the last entry of a log that can be read: the end of the log, or damage.
"""
