"""TLS contexts: whom to trust and what certificate to show; and what TLS errors mean.

What the URL does not name (url.py) is taken from the environment:

    SHARDMQ_TLS_CA                     file with the authorities to trust
    SHARDMQ_TLS_CERT, SHARDMQ_TLS_KEY  the certificate to show, and its key
"""

import os
import ssl
from collections.abc import Iterable
from typing import Final

from shardmq.client.api.url import Address, TlsFiles
from shardmq.errors import ConnectionLost, InvalidRequest

CA_VARIABLE: Final = "SHARDMQ_TLS_CA"
CERTIFICATE_VARIABLE: Final = "SHARDMQ_TLS_CERT"
KEY_VARIABLE: Final = "SHARDMQ_TLS_KEY"

NO_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "UNKNOWN_PROTOCOL"})
"""What OpenSSL calls bytes that are no TLS: the greeting of a port without it. Its versions differ."""


def check_tls(addresses: Iterable[Address], tls: ssl.SSLContext | None) -> None:
    """Make sure that the files which addresses need are there, and what they should be.

    Raises:
        InvalidRequest: they are not; or the program hands in a context, and the URL names files as well.
    """
    for files in {address.files for address in addresses if address.tls}:
        if tls is None:
            _context(files)
        elif (files.authorities, files.certificate, files.is_verified) != (None, None, True):
            raise InvalidRequest("a context is handed in as tls=…, and the URL names files as well; leave one of both")


def context_for(address: Address, tls: ssl.SSLContext | None) -> ssl.SSLContext | None:
    """The TLS context for an address: the program's, else one made of files; None without TLS.

    Files are read anew for each connection: a certificate may have been renewed.

    Raises:
        ConnectionLost: a file is gone, or not what it should be any more.
    """
    if not address.tls:
        return None
    if tls is not None:
        return tls
    try:
        return _context(address.files)
    except InvalidRequest as fault:
        raise ConnectionLost(f"no connection to {address}: {fault.text}") from fault


def server_name(address: Address) -> str:
    """The name that the broker's certificate has to have."""
    return address.files.server_name or address.host


def _context(files: TlsFiles) -> ssl.SSLContext:
    """A context made of files, those of the environment where the URL names none.

    Raises:
        InvalidRequest: one is not what it should be; the text says which.
    """
    authorities, from_authorities = files.authorities, "cacertfile of the URL"
    certificate, key, origin = files.certificate, files.key, "certfile of the URL"
    if authorities is None:
        authorities, from_authorities = os.environ.get(CA_VARIABLE) or None, CA_VARIABLE
    if certificate is None:
        certificate, origin = os.environ.get(CERTIFICATE_VARIABLE) or None, CERTIFICATE_VARIABLE
        key = os.environ.get(KEY_VARIABLE) or None
        if key is not None and certificate is None:
            raise InvalidRequest(f"{KEY_VARIABLE} is set to {key}, and {CERTIFICATE_VARIABLE} is not; set both")
    for path, what in ((authorities, from_authorities), (certificate, origin), (key, f"the key for {certificate}")):
        _check_readable(path, what)
    try:
        context = ssl.create_default_context(cafile=authorities)
    except ssl.SSLError as fault:
        raise InvalidRequest(f"there are no certificates in PEM in {authorities} ({from_authorities})") from fault
    if not files.is_verified:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate is not None:
        _load_pair(context, certificate, key, origin)
    return context


def _check_readable(path: str | None, what: str) -> None:
    try:
        if path is not None:
            with open(path, "rb"):
                pass
    except OSError as fault:
        raise InvalidRequest(f"{path} ({what}) cannot be read: {fault.strerror or fault}") from fault


def _load_pair(context: ssl.SSLContext, certificate: str, key: str | None, origin: str) -> None:
    with open(certificate, "rb") as file:
        if b"-----BEGIN CERTIFICATE-----" not in file.read():
            raise InvalidRequest(f"there is no certificate in PEM in {certificate} ({origin})")
    try:
        context.load_cert_chain(certificate, key, password=_refuse_password)
    except (ssl.SSLError, ValueError) as fault:
        reason = (isinstance(fault, ssl.SSLError) and fault.reason) or str(fault)
        if reason == "KEY_VALUES_MISMATCH":
            raise InvalidRequest(
                f"the key {key or certificate} is not that of the certificate {certificate}"
            ) from fault
        raise InvalidRequest(
            f"{key or certificate} has no private key in PEM without a password for the certificate {certificate}: "
            f"{reason}"
        ) from fault


def _refuse_password() -> str:
    """Asked for where a key is encrypted; OpenSSL would ask the terminal."""
    raise ValueError("the key is encrypted")


def why(fault: OSError | ValueError | None) -> str:
    """Why a connection could not be made, in words that say what to do where it is TLS."""
    if isinstance(fault, ssl.SSLCertVerificationError):
        return (
            f"its certificate is not to be trusted ({fault.verify_message}); name its authority: cacertfile=… in the "
            f"URL, {CA_VARIABLE}, or a context as tls=…"
        )
    if isinstance(fault, ssl.SSLError) and fault.reason in NO_TLS:
        return "it speaks no TLS there; name its port for TLS, or write shardmq:// for none"
    if fault is None:
        return "its name has no address"
    return (isinstance(fault, OSError) and fault.strerror) or str(fault) or "no answer in time"


def hung_up(peer: str, address: Address, is_open: bool) -> str:
    """The sentence for a broker that closed the connection without a word.

    Args:
        peer: what it is called.
        address: which it was connected to by.
        is_open: whether the connection was opened before; otherwise it may be TLS that the two do not agree on.
    """
    said = f"the broker at {peer} closed the connection"
    if is_open:
        return said
    if address.tls:
        return (
            f"{said} before it was open; it may want a certificate of this program's: certfile=… and keyfile=… in the "
            f"URL, {CERTIFICATE_VARIABLE} and {KEY_VARIABLE}, or a context as tls=…"
        )
    return f"{said} before it was open; if that is its port for TLS, write shardmqs://"
