"""Errors of the HTTP API, in RabbitMQ's shape: a status, and {"error", "reason"}.

RabbitMQ answers missing rights with 401, not 403 (rabbit_mgmt_util.erl, `not_authorised`), and most of what AMQP
refuses with 400; its clients read `reason`.
"""

import logging
from typing import Final, Self

from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web import RequestPayloadError

from shardmq.errors import AuthenticationFailed, ConnectionFault, ReplyCode, ShardmqError, Timeout, Unavailable

LOGIN_FAILED: Final = "Login failed"
NO_ACCESS: Final = "User not authorised to access virtual host"
NOT_MANAGER: Final = "Not management user"

REFUSED_LOGIN: Final = "not_authorized"
"""RabbitMQ's word for logins that failed; missing rights are "not_authorised"."""


PEERS_FAULTS: Final = (HttpProcessingError, RequestPayloadError, ConnectionError)
"""What is raised where somebody sends what is no HTTP, or goes in the middle of it."""


def is_ours(record: logging.LogRecord) -> bool:
    """Whether aiohttp tells of a fault of this process; peers' faults are answered, and would fill the log."""
    fault = None if record.exc_info is None else record.exc_info[1]
    return not isinstance(fault, PEERS_FAULTS)


class ApiError(Exception):
    """A request that is answered with an error.

    Args:
        status: of HTTP.
        error: a word for programs, such as "not_found".
        reason: what was wrong, and what to do.
        headers: more of the answer.
    """

    def __init__(self, status: int, error: str, reason: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.error = error
        self.reason = reason
        self.headers = headers or {}

    @classmethod
    def bad_request(cls, reason: str) -> Self:
        """The request makes no sense."""
        return cls(400, "bad_request", reason)

    @classmethod
    def not_found(cls, reason: str) -> Self:
        """There is no such thing."""
        return cls(404, "not_found", reason)

    @classmethod
    def not_authorised(cls, reason: str) -> Self:
        """The caller may not do that."""
        return cls(401, "not_authorised", reason)

    @classmethod
    def of(cls, fault: ShardmqError) -> Self:
        """The answer for what the broker or the client library said."""
        if isinstance(fault, AuthenticationFailed):
            return cls._of_login(fault)
        if isinstance(fault, ConnectionFault):
            return cls(503, "service_unavailable", f"the broker cannot be reached: {fault.text}", {"Retry-After": "1"})
        if isinstance(fault, Timeout | Unavailable):
            return cls(503, "service_unavailable", fault.text, {"Retry-After": "1"})
        status, error = _STATUSES.get(fault.code, (400, "bad_request"))
        return cls(status, error, fault.text)

    @classmethod
    def _of_login(cls, fault: AuthenticationFailed) -> Self:
        if fault.code == ReplyCode.RESOURCE_ERROR:
            return cls(503, "service_unavailable", fault.text, {"Retry-After": "5"})
        if fault.code == ReplyCode.NOT_ALLOWED:
            return cls.not_authorised(fault.text)
        return cls(401, REFUSED_LOGIN, LOGIN_FAILED)


_STATUSES: Final = {
    ReplyCode.ACCESS_REFUSED: (401, "not_authorised"),
    ReplyCode.NOT_FOUND: (404, "not_found"),
    ReplyCode.CONTENT_TOO_LARGE: (400, "bad_request"),
    ReplyCode.RESOURCE_ERROR: (503, "service_unavailable"),
    ReplyCode.NOT_IMPLEMENTED: (501, "not_implemented"),
}
"""By reply code; all others are 400."""
