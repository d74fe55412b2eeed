"""The pages of LMDB's file, looked through before LMDB touches it.

page.py          The pages of an LMDB file, read without LMDB: it has no checksums, and a damaged page may end the
                 process.
page_account.py  Every page of an LMDB file holds one thing, or is free.
page_check.py    Looks through the structure of an LMDB file before LMDB trusts it.
"""
