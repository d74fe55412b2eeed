"""Being told of what is written in etcd.

watched_prefix.py  What a watcher knows: it misses nothing for good, and never goes back. No I/O.
looks.py           Reads every second what may be new, for all watchers of a process at once.
watcher.py         Keeps a watched prefix up to date, whatever breaks.
"""
