"""The management process: RabbitMQ's HTTP API over the broker's native protocol, a client with its callers' rights.

process.py  Options, start, stop.
sampling.py Takes samples of the broker and of its busiest queues.
moving.py   Messages moved inside the broker, each exactly once.
republishing.py A changed copy of one message, published; for the HTTP API and the command line.
server.py   Listens, finds the endpoint of a request, checks who asks, answers.
api/        The endpoints of RabbitMQ's HTTP API, one noun a file.
own/        The endpoints that RabbitMQ does not have.
page/       The page for operators, and how it is served.
description/  The HTTP API described in OpenAPI, and as a page that people read.
dead_letters/  Dead letters found, counted and redriven, for the HTTP API and the command line.
findings/   Rules that say what is wrong.
metrics/    What Prometheus scrapes.
web/        What endpoints share: requests, rights, answers, errors, lists.
probes/     What is seen of a broker without a login.
samples/    What counters were, for charts and mean rates.
state/      What it knows while it runs: callers' logins, sessions of browsers.
"""
