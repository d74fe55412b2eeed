"""Certificates that are renewed while a process listens; handshakes in memory."""

import logging
import os
import ssl
from pathlib import Path

import pytest
import trustme

from shardmq.errors import StartupRefused
from shardmq.runtime.renewal import LOOK_SECONDS, RenewableContext
from shardmq.runtime.tls import TlsOptions


class Files:
    """A server's certificate and key as files, and who trusts it."""

    def __init__(self, folder: Path) -> None:
        self.options = TlsOptions(1, folder / "cert.pem", folder / "key.pem", folder / "ca.pem")
        self.trusting = self.issue()

    def issue(self) -> ssl.SSLContext:
        """Write others, of an authority of their own."""
        authority = trustme.CA()
        issued = authority.issue_cert("localhost")
        authority.cert_pem.write_to_path(str(self.options.ca))
        issued.cert_chain_pems[0].write_to_path(str(self.options.certificate))
        issued.private_key_pem.write_to_path(str(self.options.key))
        self.trusting = ssl.create_default_context()
        authority.configure_trust(self.trusting)
        return self.trusting


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def shakes_hands(context: RenewableContext, trusting: ssl.SSLContext) -> bool:
    """Whether a client that trusts an authority gets a connection."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting.wrap_bio(to_client, to_server, server_hostname="localhost")
    server = context.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError:
                return False
    return True


def test_changed_files_count_from_the_next_look_on_a_minute_later(files: Files) -> None:
    before, context = files.trusting, RenewableContext(files.options)
    context.look(1000.0)
    assert shakes_hands(context, before)
    after = files.issue()
    context.look(1000.0 + LOOK_SECONDS / 2)
    assert shakes_hands(context, before)
    context.look(1000.0 + LOOK_SECONDS)
    assert shakes_hands(context, after)
    assert not shakes_hands(context, before)


def test_files_that_cannot_be_used_are_told_once_and_those_before_stay(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    before, context = files.trusting, RenewableContext(files.options)
    certificate, key = files.options.certificate.read_bytes(), files.options.key.read_bytes()
    after = files.issue()
    renewed = files.options.key.read_bytes()
    files.options.key.write_bytes(key)  # half of a renewal: the new certificate with the old key
    with caplog.at_level(logging.INFO):
        for turn in range(3):
            context.look(1000.0 + turn * LOOK_SECONDS)
        assert [record.levelname for record in caplog.records] == ["ERROR"]
        assert "are no pair" in caplog.text
        assert "new connections get the certificate that was read before" in caplog.text
        assert shakes_hands(context, before)
        files.options.key.unlink()
        context.look(1000.0 + 3 * LOOK_SECONDS)
        assert "cannot be read" in caplog.text
        files.options.key.write_bytes(renewed)
        context.look(1000.0 + 4 * LOOK_SECONDS)
        assert "anew" in caplog.messages[-1]
    assert certificate != files.options.certificate.read_bytes()
    assert shakes_hands(context, after)


def test_a_file_that_is_replaced_by_one_of_the_same_age_is_noticed(files: Files, tmp_path: Path) -> None:
    context = RenewableContext(files.options)
    context.look(1000.0)
    age = files.options.certificate.stat().st_mtime_ns
    after = files.issue()
    for path in (files.options.certificate, files.options.key, files.options.ca):
        assert path is not None
        os.utime(path, ns=(age, age))
        (tmp_path / "new").write_bytes(path.read_bytes())
        (tmp_path / "new").replace(path)
        os.utime(path, ns=(age, age))
    context.look(1000.0 + LOOK_SECONDS)
    assert shakes_hands(context, after)


def test_a_start_with_files_that_cannot_be_used_is_refused(files: Files) -> None:
    files.options.key.write_text("no key")
    with pytest.raises(StartupRefused, match="are no pair"):
        RenewableContext(files.options)
