"""What a task knows of itself."""

from pyspark import TaskContext

from shardmq.spark.connection.broker import BrokerConnection
from shardmq.spark.connection.gateways import SPREAD, Route
from shardmq.spark.connection.shared import connection
from shardmq.spark.options import Options


def task_connection(options: Options, wanted: str = "") -> BrokerConnection:
    """This process's connection to the gateway that is best for the task that runs, or for the driver.

    Args:
        options: of the job.
        wanted: where clients reach the host that leads what is read, as host:port; "" for any.

    Raises:
        ConnectionLost: no broker answers in time.
        AuthenticationFailed: user, password or virtual host were refused.
    """
    context, is_spread = TaskContext.get(), options.gateways == SPREAD
    if context is None:
        return connection(options.url, options.timeout, Route(0, 0, wanted, is_spread))
    route = Route(context.partitionId(), context.attemptNumber(), wanted, is_spread)
    return connection(options.url, options.timeout, route)
