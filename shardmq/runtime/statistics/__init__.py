"""What is counted, and how fast it rises.

rates.py       Rates, from two looks at counters.
histograms.py  How long something took, or how large it was, how often.
"""
