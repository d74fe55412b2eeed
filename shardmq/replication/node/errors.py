"""What a replica that does not lead refuses."""

from shardmq.errors import ReplicationRefused, ReplyCode


class NotPrimary(ReplicationRefused):
    """A commit was asked of a replica that does not lead, or that hands over. Its owner has to end."""

    code = ReplyCode.PRECONDITION_FAILED
