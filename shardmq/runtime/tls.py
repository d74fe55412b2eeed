"""TLS of a listening port: its options, and the context made of them."""

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from shardmq.errors import StartupRefused

SHUTDOWN_SECONDS: Final = 5.0
"""A peer that does not answer the closing of TLS within this time is disconnected."""


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """The TLS options of a listening port.

    Attributes:
        port: TCP port of its own; gateways of one broker share it.
        certificate: file with the server's certificate, and those between it and its authority (PEM).
        key: file with the certificate's private key (PEM, not encrypted).
        ca: file with the authorities that clients' certificates are verified by (PEM). Clients that show one may log in
            by it (EXTERNAL); a certificate of another authority is refused.
        verify_client: whether a client without a certificate is refused, too.
        host: address to listen on; that of the plain port when None.
        is_alone: whether there is no plain port.
    """

    port: int
    certificate: Path
    key: Path
    ca: Path | None = None
    verify_client: bool = False
    host: str | None = None
    is_alone: bool = False


def server_context(options: TlsOptions) -> ssl.SSLContext:
    """The context for a listener: TLS 1.2 or newer, Python's choice of ciphers.

    Raises:
        StartupRefused: a file does not exist, cannot be read, or holds something else.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if options.verify_client and options.ca is None:
        raise StartupRefused("clients' certificates are to be verified, and no file of authorities is given; name one")
    for what, path in (("certificate", options.certificate), ("key", options.key), ("authorities", options.ca)):
        _check_readable(what, path)
    try:
        context.load_cert_chain(options.certificate, options.key, password=_refuse_password)
    except (ssl.SSLError, ValueError) as fault:
        raise StartupRefused(
            f"TLS: certificate {options.certificate} and key {options.key} are no pair in PEM without a password: "
            f"{_reason(fault)}"
        ) from fault
    if options.ca is not None:
        try:
            context.load_verify_locations(cafile=options.ca)
        except ssl.SSLError as fault:
            raise StartupRefused(f"TLS: there are no certificates in PEM in {options.ca}: {_reason(fault)}") from fault
        context.verify_mode = ssl.CERT_OPTIONAL
    if options.verify_client:
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def common_name(certificate: dict[str, Any] | None) -> str | None:
    """The common name in a peer's certificate, as for RabbitMQ's `ssl_cert_login_from = common_name`.

    Args:
        certificate: what `ssl.SSLSocket.getpeercert` returned.

    Returns:
        The name, several joined by a comma; "" where the certificate has none; None where there is no verified
        certificate.
    """
    if not certificate:
        return None
    subject = certificate.get("subject", ())
    return ",".join([value for part in subject for name, value in part if name == "commonName"])


def _check_readable(what: str, path: Path | None) -> None:
    try:
        if path is not None:
            path.open("rb").close()
    except OSError as fault:
        raise StartupRefused(f"TLS: the {what} {path} cannot be read: {fault.strerror or fault}") from fault


def _refuse_password() -> str:
    """Refuse an encrypted key, for whose password OpenSSL would ask the terminal."""
    raise ValueError("the key is encrypted")


def _reason(fault: Exception) -> str:
    return (isinstance(fault, ssl.SSLError) and fault.reason) or str(fault)
