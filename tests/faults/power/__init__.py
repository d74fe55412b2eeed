"""Power losses, emulated: what a broker writes and syncs is recorded, and a disk is made of it as of any moment.

recorder.c     preloaded into the broker's processes: logs each write, sync, rename and so on, with times
recording.py   builds the recorder, starts brokers under it, reads its logs
disk.py        what is on the disk when the power fails: all that was synced, and some of what was not
history.py     what clients saw, with times; and what must be there after a power loss
traffic.py     clients that write such a history
groups.py      what members of groups note, and what must be so of their offsets
"""
