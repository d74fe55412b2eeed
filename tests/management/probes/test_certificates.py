"""How long certificates hold, as a broker's listeners show them."""

import datetime
import warnings
from pathlib import Path

import requests
import trustme

from shardmq.cmd.run.broker import Broker
from shardmq.cmd.run.locks import hold_port


def issue(authority: trustme.CA, folder: Path, name: str, not_after: datetime.datetime) -> tuple[str, str]:
    """The files of a certificate and of its key."""
    issued = authority.issue_cert("127.0.0.1", not_after=not_after)
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(key)
    return str(certificate), str(key)


def test_certificates_that_end_are_named_by_their_ports(tmp_path: Path) -> None:
    authority, now = trustme.CA(), datetime.datetime.now(datetime.UTC)
    weeks, gone = now + datetime.timedelta(weeks=3), now - datetime.timedelta(days=1)
    brokers, managements = issue(authority, tmp_path, "broker", weeks), issue(authority, tmp_path, "management", gone)
    with hold_port("127.0.0.1", 0) as port:
        options = ["--tls-port", str(port), "--tls-cert", brokers[0], "--tls-key", brokers[1]]
    options += ["--management-tls-cert", managements[0], "--management-tls-key", managements[1]]
    broker = Broker(tmp_path / "data", shards=1, options=options, management=True)
    with broker, warnings.catch_warnings(), requests.Session() as session:
        warnings.simplefilter("ignore")  # of a certificate that is not verified
        session.trust_env = session.verify = False
        session.auth = ("guest", "guest")

        def check(within: str) -> tuple[int, set[str]]:
            url = f"{broker.management_url}api/health/checks/certificate-expiration/{within}"
            answer = session.get(url, timeout=30)
            return answer.status_code, {row["protocol"] for row in answer.json().get("expired", ())}

        assert check("1/days") == (503, {"https"})
        assert check("2/weeks") == (503, {"https"})
        assert check("1/months") == (503, {"https", "amqp/ssl"})
        assert check("1/fortnights") == (400, set())


def test_without_tls_nothing_ends(managed: Broker) -> None:
    url = f"{managed.management_url}api/health/checks/certificate-expiration/1/years"
    assert requests.get(url, auth=("guest", "guest"), timeout=30).json() == {"status": "ok"}
