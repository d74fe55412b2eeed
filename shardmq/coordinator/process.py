"""The coordinator process: options, start and stop, the loop."""

import signal
from types import FrameType

from shardmq.coordinator.loop import CoordinatorLoop, CoordinatorOptions
from shardmq.runtime import notify


def run(options: CoordinatorOptions) -> None:
    """Coordinate until SIGTERM or SIGINT.

    Raises:
        StartupRefused: the store is not ours to open, or has queues on shards that are not there.
    """
    coordinator = CoordinatorLoop(options)

    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        coordinator.stop()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    notify.ready()
    try:
        coordinator.serve()
    finally:
        notify.stopping()
        coordinator.close()
