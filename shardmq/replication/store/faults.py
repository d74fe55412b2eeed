"""What a replica refuses of what others send, and what it cannot do."""

from pathlib import Path

from shardmq.errors import ReplicationRefused, ReplyCode


class EnvelopeDamaged(ReplicationRefused):
    """Bytes of another replica that are not what was sent, or make no sense for this store."""

    code = ReplyCode.FRAME_ERROR


class ReplicaFull(ReplicationRefused):
    """The disk under a replica has no room for what was sent. Nothing of it was written."""

    code = ReplyCode.RESOURCE_ERROR

    def __init__(self, file: Path, size: int) -> None:
        super().__init__(
            f"the disk under {file} has no room for {size:,} bytes of other replicas; make room on it: until then this "
            "replica cannot follow"
        )
