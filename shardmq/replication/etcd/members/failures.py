"""What is said of calls that came to nothing: what each member said or did, and what to do about it."""

from collections.abc import Mapping

from shardmq.replication.etcd.answers import Failure, Status
from shardmq.replication.etcd.errors import OutcomeUnknown, Refused, Unreachable
from shardmq.replication.etcd.url import Endpoint, EtcdUrl

Reasons = Mapping[Endpoint, str]


def refused(failure: Failure, url: EtcdUrl) -> Refused:
    """A member has refused a request."""
    advice = ""
    if failure.status == Status.RESOURCE_EXHAUSTED:
        advice = "; compact and defragment etcd, then `etcdctl alarm disarm`"
    elif failure.status == Status.PERMISSION_DENIED and url.user:
        advice = f"; grant {url.user} a role with readwrite on prefix /{url.prefix}/"
    elif failure.status == Status.PERMISSION_DENIED or "user name is empty" in failure.text:
        advice = "; etcd has users: name one in its URL, as etcds://user:password@…"
    return Refused.of(failure.status, f"etcd refused a request: {failure.text}{advice}")


def unreachable(reasons: Reasons, url: EtcdUrl) -> Unreachable:
    """No member has answered, and nothing was changed."""
    return Unreachable(f"no answer from etcd: {_told(reasons, url)}; check that its members run and can be reached")


def unknown(reasons: Reasons, url: EtcdUrl) -> OutcomeUnknown:
    """A change was sent, and may have taken effect."""
    return OutcomeUnknown(
        f"a change was sent to etcd, and the answer was lost: {_told(reasons, url)}; read again what is there"
    )


def _told(reasons: Reasons, url: EtcdUrl) -> str:
    return ", ".join(f"{endpoint} ({reasons.get(endpoint, 'not asked in time')})" for endpoint in url.endpoints)
