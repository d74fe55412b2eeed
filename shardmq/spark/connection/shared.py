"""This process's connections, shared by the tasks that it runs: one for each gateway that came first."""

import atexit
import os

from shardmq.client.api.url import parse_all
from shardmq.spark.connection.broker import BrokerConnection
from shardmq.spark.connection.gateways import ANY, Route, ordered

_connections: dict[tuple[int, str, str], BrokerConnection] = {}
"""Open connections by process id, URL and the gateway that comes first. State of the process: Spark runs many tasks in
one worker, one after the other, and calls each with nothing but pickled values; a connection for each task would cost
more than small tasks do."""


def connection(url: str, timeout: float = 30.0, route: Route = ANY) -> BrokerConnection:
    """This process's connection to a URL, shared by the tasks that a Python worker runs one after the other.

    One thread at a time may use it: it drops answers to requests that are not its own. What a job asks in the driver's
    process, where several jobs may run at once, goes over connections of its own.

    Args:
        url: as for `BrokerConnection`.
        timeout: as for `BrokerConnection`, from now on.
        route: as for `BrokerConnection`; there is a connection for each gateway that came first.

    Raises:
        InvalidRequest: the URL is malformed.
        ConnectionLost: no broker answers in time.
        AuthenticationFailed: user, password or virtual host were refused.
    """
    first = str(ordered(parse_all(url), route)[0])
    key = os.getpid(), url, first  # workers are forked, and must not use their parent's connection
    broker = _connections.get(key)
    if broker is None:
        broker = _connections[key] = BrokerConnection(url, timeout, route)
    broker.timeout = timeout
    broker.listener = None
    if broker.unsent or not broker.is_alive():
        broker.drop()  # a failed task left half a frame, or the broker is gone
        broker.connect()
    broker.go_back()
    return broker


@atexit.register
def _close_all() -> None:
    for (pid, *_), broker in _connections.items():
        if pid == os.getpid():
            broker.close()
