"""Closed stores repaired: what was found, edits, and what can be saved of a broken file.

closed_file.py  A store's file that no process has open, read without changing a byte of it.
closed_log.py   What the redo log of such a store has that is not in its file.
findings.py  What a look through a closed store finds.
rebuild.py   A store whose file's structure is damaged, built anew from the rows that can still be reached.
repair.py    Repairs of closed stores: the original is copied aside, then all edits are written in one transaction.
salvage.py   Rows of an LMDB file whose structure is damaged: all that can still be reached from its newer meta page.
"""
