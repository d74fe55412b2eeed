"""What the stores on disk have in common.

files.py       files and folders that are on disk for certain
space.py       what a store could still write, and the reserve it keeps for acknowledgements
compaction.py  a store's file without its free pages
"""
