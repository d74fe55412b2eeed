"""Storage engines: ordered databases of keys and values, written in atomic batches. lmdb is imported here alone.

engine.py           The interface of an engine: get, scan, apply a list of edits, sync, close.
lmdb_engine.py      The engine on LMDB, with an optional redo log in front of it.
memory_engine.py    The same in memory, for tests and for what need not survive.
versions.py         Versions of the format of stores.
lmdb_environment.py A store's file as LMDB sees it: locked, checked before it is touched, refused when it is not ours.
page_map.py         Giving mapped pages back to the kernel now and then.
backup_manifest.py  What a backup says of itself: whose it is, of which moment, and which files belong to it.
checksums.py        Rows with checksums: LMDB has none.
compaction.py       Compaction: a store's file is copied without its free pages, and the copy takes its place.
disk_space.py       The disk under a store: how much can still be written, and a reserve that nobody else can have.
files.py            Files and folders that are on disk for certain.
folder_lock.py      A store's folder is one process's: who opens the store locks it, and who only looks at it, too.
store_copy.py       A store copied while it is in use: a snapshot of it is written elsewhere on threads, at a bounded
                    rate.
pages/              The pages of LMDB's file, looked through before LMDB touches it.
redo/               The redo log: a small commit with one flush instead of LMDB's two.
repair/             Closed stores repaired: what was found, edits, and what can be saved of a broken file.
"""
