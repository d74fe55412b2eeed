"""What Prometheus scrapes: the broker's statistics in its text format, in RabbitMQ's names and in our own.

exposition.py  Prometheus's text format, written.
aggregated.py  Metrics of the broker in RabbitMQ's names: what Grafana's dashboard 10991 reads.
processes.py   Metrics of the broker's processes, which RabbitMQ does not have.
replicas.py    Metrics of hosts and replicas, of a broker on several hosts.
objects.py     Metrics of each queue, exchange, connection and channel.
endpoints.py   /metrics, /metrics/per-object, /metrics/detailed, /livez and /readyz.
"""
