"""`shardmq check certificate` over a real port with TLS."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme

from shardmq.cmd.run.broker import Broker
from shardmq.cmd.run.locks import hold_port

Printed = Callable[..., bytes]


def test_a_certificate_is_held_against_the_days_it_has(
    printed: Printed, tmp_path: Path, start_broker: Callable[..., Broker]
) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("localhost", not_after=datetime.now(UTC) + timedelta(days=20, hours=1))
    stranger, ours, pair = tmp_path / "stranger.pem", tmp_path / "ca.pem", tmp_path / "server.pem"
    trustme.CA().cert_pem.write_to_path(str(stranger))
    authority.cert_pem.write_to_path(str(ours))
    issued.private_key_and_cert_chain_pem.write_to_path(str(pair))
    with hold_port("127.0.0.1", 0) as port:
        options = ["--tls-port", str(port), "--tls-cert", str(pair), "--tls-key", str(pair)]
        start_broker(shards=1, options=options)
        at = ("--url", f"shardmqs://guest:guest@localhost:{port}/", "--tls-ca")
        assert b"CERTIFICATE WARNING - the certificate expires in 20.0 days" in printed(
            "check", "certificate", *at, str(ours), code=1
        )
        assert b"OK" in printed("check", "certificate", *at, str(ours), "--days", "20,7")
        assert b"CRITICAL" in printed("check", "certificate", *at, str(ours), "--days", "60,30", code=2)
        assert b"is refused: " in printed("check", "certificate", *at, str(stranger), code=2)
    nowhere = printed("check", "certificate", "--url", "shardmqs://127.0.0.1:1/", code=3)
    assert b"nobody answers with TLS" in nowhere
    assert b"has no TLS" in printed("check", "certificate", "--url", "shardmq://127.0.0.1:1/", code=3)
