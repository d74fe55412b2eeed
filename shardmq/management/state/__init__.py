"""What the process knows while it runs.

callers.py         Logins of those who ask, kept for a while: connections to the broker with their own credentials.
facts.py           The node's name, and where this process listens.
large_requests.py  Places of requests with large bodies, of which few are in memory at once.
login_counts.py    How many logins there were since they were last reset.
sessions.py        Logins of browsers, by cookie.
shared.py          Answers that everybody gets who asks for the same at the same time.
shares.py          Shares of the processor that the broker's processes have.
"""
