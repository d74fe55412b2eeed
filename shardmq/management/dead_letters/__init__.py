"""Dead letters: found, counted and redriven over a connection; for the HTTP API and for the command line.

finding.py    Dead letters that the broker finds, and where each would go.
counting.py   Dead letters counted by queue, reason and source.
redriving.py  Dead letters redriven to the queues that they died in.
walking.py    Messages under a reservation, and dead letters of many queues, within bounds.
"""
