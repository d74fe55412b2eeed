"""The token of a user: asked for when it is first needed, and again when a member does not know it any more.

Members forget the default "simple" tokens when they start, and five minutes after their last use.
"""

from dataclasses import dataclass
from typing import Final

from shardmq.replication.etcd.answers import Status
from shardmq.replication.etcd.errors import EtcdError, Refused
from shardmq.replication.etcd.messages import AuthenticateAnswer

TRIES: Final = 3
"""How often one request is sent again with a new token. Who is refused more often is refused for good."""


@dataclass(slots=True)
class Login:
    """A user's login.

    Attributes:
        user: "" for none, so that no token is needed.
        password: the user's.
        token: what requests carry; None where it has to be asked for.
        is_asked: whether it was, and there is no answer yet.
    """

    user: str
    password: str
    token: str | None = None
    is_asked: bool = False

    def __post_init__(self) -> None:
        if not self.user:
            self.token = ""

    def forget(self, token: str) -> bool:
        """A member does not know this token; a newer one stays. Returns whether it was the newest."""
        is_newest = token == self.token
        if self.user and is_newest:
            self.token = None
        return is_newest

    def receive(self, outcome: AuthenticateAnswer | EtcdError) -> EtcdError | None:
        """Take the answer to a login.

        Returns:
            Why there is no token, where whoever waits for one must be told.
        """
        self.is_asked = False
        if isinstance(outcome, AuthenticateAnswer):
            self.token = outcome.token
        elif isinstance(outcome, Refused) and outcome.status == Status.FAILED_PRECONDITION:
            self.token = ""  # etcd has its users switched off, and takes requests without
        elif isinstance(outcome, Refused):
            return Refused.of(
                outcome.status,
                f"etcd does not let user '{self.user}' in ({outcome.text}); check user and password in its URL",
            )
        return None
