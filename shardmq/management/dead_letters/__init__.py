"""Dead letters: found, counted and redriven over a connection; for the HTTP API and for the command line.

chosen.py     What messages died of, where and when; and which dead letters are meant.
counting.py   Dead letters counted by queue, reason and source.
redriving.py  Dead letters redriven to the queues that they died in.
walking.py    Ready messages of queues, portion by portion, within bounds.
"""
