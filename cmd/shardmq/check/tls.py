"""How long the certificate of a broker's port is good for."""

import socket
import ssl
import time
from typing import Final

from shardmq.client.api.tls import context_for, server_name
from shardmq.client.api.url import parse
from shardmq.cmd.terminal.output import CommandFailed

CONNECT_SECONDS: Final = 10.0

DAY_SECONDS: Final = 86_400


class NotTrusted(Exception):
    """The certificate is not one that clients with this URL would accept; the text says why."""


def days_left(url: str) -> float:
    """Days until the certificate of a URL's port expires.

    Raises:
        NotTrusted: a client with this URL would refuse it.
        CommandFailed: the URL has no TLS or trusts everybody, or nobody answers there with TLS.
        ConnectionLost: a file that the URL names is gone.
    """
    address = parse(url)
    context = context_for(address, None)
    if context is None:
        raise CommandFailed("the URL has no TLS, so there is no certificate; write it as shardmqs://…")
    if not address.files.is_verified:
        raise CommandFailed("with verify=verify_none no certificate is read; name its authority by --tls-ca")
    try:
        with (
            socket.create_connection((address.host, address.port), CONNECT_SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=server_name(address)) as secured,
        ):
            certificate = secured.getpeercert()
    except ssl.SSLCertVerificationError as fault:
        raise NotTrusted(f"the certificate of {address} is refused: {fault.verify_message}") from fault
    except OSError as fault:  # TLS errors among them
        raise CommandFailed(f"nobody answers with TLS at {address}: {fault.strerror or fault}") from fault
    assert certificate is not None, "it was verified"
    return (ssl.cert_time_to_seconds(str(certificate["notAfter"])) - time.time()) / DAY_SECONDS
