"""The integration tests that py-amqp and kombu ship in their source distributions, as they are, against shardmq."""

import importlib.metadata
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
import trustme

from shardmq.cmd.run.broker import Broker
from shardmq.cmd.run.locks import hold_port

SECONDS_MAX: Final = 600
QUIET: Final = ("-q", "-rfEs", "-W", "ignore::pytest.PytestUnknownMarkWarning", "-p", "no:xdist")
"""They mark tests for plugins that we have no use for."""

STRANGERS: Final = {
    "test_rmq.py::test_tls_default_certs": "asks badssl.com whether the client knows its authority",
    "test_rmq.py::test_tls_no_default_certs_fails": "asks badssl.com whether the client refuses it",
}
"""Tests that are not about the broker at all, and what they do instead."""


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, int, Path]]:
    """A broker, its port for TLS, and a folder with `t/certs` as py-amqp's tests look for them."""
    folder = tmp_path_factory.mktemp("suites")
    certs = folder / "t" / "certs"
    certs.mkdir(parents=True)
    authority = trustme.CA()
    for name, issued in (("server", authority.issue_cert("127.0.0.1")), ("client", authority.issue_cert("guest"))):
        (certs / f"{name}_certificate.pem").write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        (certs / f"{name}_key.pem").write_bytes(issued.private_key_pem.bytes())
    for name in ("client_certificate_broken.pem", "client_key_broken.pem"):
        (certs / name).write_text("-----BEGIN CERTIFICATE-----\nbroken\n-----END CERTIFICATE-----\n")
    authority.cert_pem.write_to_path(certs / "ca_certificate.pem")
    with hold_port("127.0.0.1", 0) as port:
        options = ["--tls-port", str(port), "--tls-cert", str(certs / "server_certificate.pem")]
        options += ["--tls-key", str(certs / "server_key.pem")]
        with Broker(folder / "data", shards=2, options=options) as broker:
            yield broker, port, folder


@pytest.mark.parametrize(
    ("package", "files", "count", "runs"),
    [
        ("amqp", ["test_integration.py", "test_rmq.py"], 61, 1),
        ("kombu", ["test_py_amqp.py"], 51, 3),  # marked so by itself: it gives a broker one second for anything
    ],
    ids=["py-amqp", "kombu"],
)
def test_a_clients_own_tests_pass(
    secured: tuple[Broker, int, Path],
    find_peer: Callable[..., Path],
    tmp_path: Path,
    package: str,
    files: list[str],
    count: int,
    runs: int,
) -> None:
    broker, tls_port, folder = secured
    source = find_peer(f"{package}'s source", f"sdists/{package}-{importlib.metadata.version(package)}")
    suite = source / "t" / "integration"
    where = {"RABBITMQ_HOST": broker.host, "RABBITMQ_5672_TCP": str(broker.port), "RABBITMQ_5671_TCP": str(tls_port)}
    command = [sys.executable, "-m", "pytest", "-c", str(source / "setup.cfg"), "--rootdir", str(source), *QUIET]
    command += ["-o", f"cache_dir={tmp_path / 'cache'}", *(str(suite / name) for name in files)]
    command += [f"--deselect=t/integration/{name}" for name in STRANGERS]
    passed = 0
    for run in range(runs):
        done = subprocess.run(
            [*command, "--last-failed"] if run else command,
            cwd=folder,
            env={**os.environ, **where},
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        print(done.stdout, done.stderr)
        counted = re.search(r"(\d+) passed", done.stdout.splitlines()[-1])
        passed += int(counted[1]) if counted else 0
        if done.returncode == 0:
            break
    assert done.returncode == 0
    assert passed >= count, "some were not run"
