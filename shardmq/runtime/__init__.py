"""What every process of the broker has, whatever it does.

clock.py       Steady time that survives restarts, and notices when the machine was suspended.
collection.py  Garbage collection that does not stop a process for long.
cores.py       How many cores this process may use.
logs.py        The log of a process: lines with a time and a level, as text or as JSON, on stderr.
memory.py      How much memory this process takes, and how much the machine has.
notify.py      Telling the supervisor or systemd that a process is ready, turns or stops, and what is wrong.
renewal.py     The TLS of a listening port whose files may be renewed while it listens.
signals.py     SIGTERM and SIGINT, as a flag that a loop looks at.
statistics/    What is counted, and how fast it rises.
tls.py         TLS of a listening port: options and context, for gateways and the management process.
vitals.py      The part of a status that all processes share.
waiting.py     Logs every few seconds what a process waits for.
watermarks.py  Memory and disk watermarks, and the levels at which their alarms are cleared.
"""
