"""What open pages and scrapes cost those who publish.

command.py    `bench watched`.
watchers.py   A process that asks what browsers with an open page and a Prometheus server ask.
"""
