"""What the stores have in common.

flips.py            which bits of a store file are flipped, and what may come of it
test_files.py       what is synced when a store is opened
test_page_check.py  files that LMDB wrote, looked through; files that it did not
"""
