"""Whether two primaries of a group answered: what their processes note as they answer, and the check of that.

    process of a replica ── each answer ──► notes, a file for each process ── after the run ──► check

sitecustomize.py  Loaded by the processes of hosts: notes what they answer, by the machine's own clock.
answers.py        Reads the notes, and says what must not be.
"""
