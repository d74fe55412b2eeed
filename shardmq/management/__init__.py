"""The management process: RabbitMQ's HTTP API over the broker's native protocol, a client with its callers' rights.

process.py  Options, start, stop.
server.py   Listens, finds the endpoint of a request, checks who asks, answers.
api/        The endpoints of RabbitMQ's HTTP API, one noun a file.
own/        The endpoints that RabbitMQ does not have.
page/       The page for operators, and how it is served.
metrics/    What Prometheus scrapes.
web/        What endpoints share: requests, rights, answers, errors, lists.
state/      What it knows while it runs: callers' logins, sessions of browsers.
"""
