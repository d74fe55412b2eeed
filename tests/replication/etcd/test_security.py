"""An etcd with TLS, clients' certificates, users and permissions."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from shardmq.cmd.bench.compare.rabbitmq import Absent
from shardmq.replication.etcd.errors import InvalidUrl, Refused, Unreachable
from shardmq.replication.etcd.messages import PutAnswer, put_request, range_request
from shardmq.replication.etcd.watching.looks import Looks
from shardmq.replication.etcd.watching.watcher import Watcher
from tests.hosts.members import Etcd
from tests.running import without

from .loop import Asker

PASSWORD = "se:cr@et/"
ENCODED = "se%3Acr%40et%2F"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an authority, a server's certificate, a client's, and one of another authority."""
    folder = tmp_path_factory.mktemp("certificates")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    for name in ("server", "client"):
        issued = authority.issue_cert("127.0.0.1" if name == "server" else "shardmq.example")
        issued.private_key_and_cert_chain_pem.write_to_path(folder / f"{name}.pem")
    named = authority.issue_cert("shardmq.example", common_name="shardmq")
    named.private_key_and_cert_chain_pem.write_to_path(folder / "named.pem")
    trustme.CA().issue_cert("shardmq.example").private_key_and_cert_chain_pem.write_to_path(folder / "stranger.pem")
    return folder


@pytest.fixture(scope="module")
def secured(certificates: Path) -> Iterator[Etcd]:
    """One member that takes connections with certificates alone; `shardmq` may write below /mq/."""
    server, ca = str(certificates / "server.pem"), str(certificates / "ca.pem")
    options = ["--cert-file", server, "--key-file", server, "--trusted-ca-file", ca, "--client-cert-auth"]
    client = str(certificates / "client.pem")
    files = ["--cacert", ca, "--cert", client, "--key", client]
    try:
        with Etcd(options=[*options, "--bcrypt-cost", "4"], scheme="https", size=1) as etcd:
            for words in (
                "role add mq",
                "role grant-permission mq --prefix=true readwrite /mq/",
                "user add root:root",
                f"user add shardmq:{PASSWORD}",
                "user grant-role root root",
                "user grant-role shardmq mq",
                "auth enable",
            ):
                etcd.control(*words.split(), options=files)
            yield etcd
    except Absent as reason:
        without(reason)


def url(etcd: Etcd, certificates: Path, user: str = f"shardmq:{ENCODED}@", certificate: str = "client.pem") -> str:
    return f"etcds://{user}{etcd.hosts}/mq?cacertfile={certificates / 'ca.pem'}&certfile={certificates / certificate}"


def test_a_user_with_a_certificate_writes_below_the_prefix_alone(secured: Etcd, certificates: Path) -> None:
    with Asker(url(secured, certificates)) as asker:
        assert isinstance(asker.ask(put_request(b"/mq/a", b"1")), PutAnswer)
        assert asker.ask(range_request(b"/mq/a")).kvs[0].value == b"1"
        refusal = asker.ask(put_request(b"/other", b"1"))
        assert isinstance(refusal, Refused)
        assert str(refusal) == (
            "etcd refused a request: etcdserver: permission denied; grant shardmq a role with readwrite on prefix /mq/"
        )


@pytest.mark.parametrize(
    ("user", "said"),
    [
        ("shardmq:wrong@", "etcd does not let user 'shardmq' in"),
        ("nobody:wrong@", "etcd does not let user 'nobody' in"),
        ("", "etcd has users: name one in its URL"),
    ],
)
def test_who_is_not_let_in_is_told_what_to_check(secured: Etcd, certificates: Path, user: str, said: str) -> None:
    with Asker(url(secured, certificates, user)) as asker:
        refusal = asker.ask(put_request(b"/mq/a", b"1"))
        assert isinstance(refusal, Refused)
        assert said in str(refusal)
        assert "wrong" not in str(refusal)


def test_a_watcher_that_may_not_read_says_why(secured: Etcd, certificates: Path) -> None:
    with Asker(url(secured, certificates)) as asker:
        watcher = Watcher(asker.client, Looks(asker.client), b"/other/", lambda _: None)
        asker.until(lambda: watcher.fault)
        assert "permission denied" in str(watcher.fault)
        assert not watcher.confirmed
        watcher.close()


def test_tokens_that_etcd_forgot_are_renewed_and_the_watcher_goes_on(secured: Etcd, certificates: Path) -> None:
    with Asker(url(secured, certificates)) as asker:
        told: dict[bytes, bytes | None] = {}
        looks = Looks(asker.client)
        watcher = Watcher(
            asker.client, looks, b"/mq/w", lambda changes: told.update({change.key: change.value for change in changes})
        )
        assert isinstance(asker.ask(put_request(b"/mq/w", b"1")), PutAnswer)
        asker.until(lambda: told.get(b"/mq/w") == b"1")
        secured.members[0].kill()
        secured.members[0].start()
        secured.wait()
        assert isinstance(asker.ask(put_request(b"/mq/w", b"2")), PutAnswer)
        asker.until(lambda: told.get(b"/mq/w") == b"2")
        watcher.close()


def test_a_certificate_that_etcd_does_not_know_is_refused(secured: Etcd, certificates: Path) -> None:
    with Asker(url(secured, certificates, certificate="stranger.pem")) as asker:
        assert "TLS failed" in str(asker.ask(range_request(b"/mq/a"), seconds=0.5))


def test_an_etcd_of_another_authority_is_not_trusted(secured: Etcd) -> None:
    with Asker(f"etcds://{secured.hosts}/mq") as asker:
        error = asker.ask(range_request(b"/mq/a"), seconds=0.5)
        assert isinstance(error, Unreachable)
        assert "its certificate is not to be trusted" in str(error)
    with Asker(f"etcd://{secured.hosts}/mq") as asker:
        assert isinstance(asker.ask(range_request(b"/mq/a"), seconds=0.5), Unreachable)


def test_a_renewed_certificate_is_taken_without_a_restart(secured: Etcd, certificates: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.pem"
    mine.write_bytes((certificates / "stranger.pem").read_bytes())
    files = f"cacertfile={certificates / 'ca.pem'}&certfile={mine}"
    with Asker(f"etcds://shardmq:{ENCODED}@{secured.hosts}/mq?{files}") as asker:
        assert isinstance(asker.ask(range_request(b"/mq/a"), seconds=0.5), Unreachable)
        mine.write_bytes((certificates / "client.pem").read_bytes())
        assert not isinstance(asker.ask(range_request(b"/mq/a")), Unreachable)


@pytest.mark.parametrize("name", ["missing.pem", "empty.pem"])
def test_a_file_that_is_no_certificate_is_told_at_the_start(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty.pem").touch()
    with pytest.raises(InvalidUrl, match=name), Asker(f"etcds://a?certfile={tmp_path / name}"):
        pass


def test_a_certificate_with_a_common_name_is_refused_by_etcds_gateway(secured: Etcd, certificates: Path) -> None:
    with Asker(url(secured, certificates, certificate="named.pem")) as asker:
        error = asker.ask(range_request(b"/mq/a"), seconds=0.5)
        assert "use a certificate without one" in str(error)
