"""Logins: passwords, and the defence against those who guess them.

authenticator.py     Logins: users and their passwords, virtual hosts and permissions, limits of connections.
failed_logins.py     Who has failed to log in lately, counted by source, by user and by both; what follows from that
                     for the next attempt.
login_queue.py       How many passwords are tried at once: a place for each attempt, few of them for one source and
                     one user.
password_hashing.py  Passwords compared with their hashes: 50 ms and 16 MB each, on few threads, in an order that is
                     fair.
refused_logins.py    Logins that were refused: counted for the status, and told of in the log without filling the
                     disk.
"""
