"""What can go wrong with etcd, and what each of it means for what was asked."""

from shardmq.errors import ReplyCode, ShardmqError


class EtcdError(ShardmqError):
    """The root of what goes wrong with etcd."""

    code = ReplyCode.RESOURCE_ERROR


class Unreachable(EtcdError):
    """No member answered in time. What was asked for has had no effect, and will have none."""


class OutcomeUnknown(EtcdError):
    """A change was sent, and its answer was lost: it may have taken effect, or may still do. Read again first."""


class Refused(EtcdError):
    """etcd refused a request, which has had no effect.

    Attributes:
        status: the gRPC status code, such as 7 for a permission that is missing.
    """

    status = 0

    @classmethod
    def of(cls, status: int, text: str) -> "Refused":
        """The error for a status."""
        error = cls(text)
        error.status = status
        return error


class UnreadableValue(EtcdError):
    """The value of a key is not what should be there; the text names the key.

    Attributes:
        key: whose value it is.
    """

    code = ReplyCode.SYNTAX_ERROR
    key = ""

    @classmethod
    def of(cls, key: str, text: str) -> "UnreadableValue":
        """The error for a key."""
        error = cls(text)
        error.key = key
        return error


class InvalidUrl(EtcdError):
    """A URL of etcd cannot be read, or a file that it names."""

    code = ReplyCode.SYNTAX_ERROR
