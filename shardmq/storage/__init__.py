"""What the stores on disk have in common.

files.py       files and folders that are on disk for certain
space.py       what a store could still write, and the reserve it keeps for acknowledgements
copying.py     a store copied while it is in use
manifest.py    what a backup says of itself
compaction.py  a store's file without its free pages
pages.py       the pages of an LMDB file, read without LMDB
page_account.py  every page holds one thing, or is free
page_check.py  looking through the structure of a file before LMDB trusts it; its free pages
rows.py        rows with checksums
tables.py      databases of such rows
findings.py    what a look through a closed store finds
holding.py     holding a store's folder without changing it
salvage.py     rows of a file whose structure is damaged
rebuilding.py  a new file made of them
mending.py     repairs: the original is kept aside, then edits are written
"""
