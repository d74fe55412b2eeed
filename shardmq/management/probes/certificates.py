"""The certificates that listeners show to clients, and until when they hold.

A certificate is taken as the listener shows it, so one that was renewed on disk and not loaded does not count.
"""

import asyncio
import ssl
from typing import Final

SECONDS: Final = 3.0
"""For each of the two handshakes."""

HAS_EXPIRED: Final = 10
"""OpenSSL's X509_V_ERR_CERT_HAS_EXPIRED."""


async def holds_until(host: str, port: int) -> float:
    """Until when the certificate holds that is shown there: seconds since 1970; 0.0 where it does not hold any more.

    Raises:
        OSError: nobody shows a certificate there, or it holds not yet.
    """
    shown = await _handshake(host, port, _context())
    certificate = shown.getpeercert(binary_form=True)
    if certificate is None:
        raise OSError(f"no certificate is shown at {host} port {port}")
    # Python tells fields of certificates that it has verified; this one is its own authority.
    context = _context()
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=certificate)
    try:
        verified = await _handshake(host, port, context)
    except ssl.SSLCertVerificationError as fault:
        if fault.verify_code == HAS_EXPIRED:
            return 0.0
        raise
    fields = verified.getpeercert() or {}
    return float(ssl.cert_time_to_seconds(str(fields["notAfter"])))


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def _handshake(host: str, port: int, context: ssl.SSLContext) -> ssl.SSLObject:
    """What a handshake has shown; the socket is closed.

    Raises:
        OSError: there is none in time.
    """
    try:
        async with asyncio.timeout(SECONDS):
            _, writer = await asyncio.open_connection(host, port, ssl=context)
    except TimeoutError as fault:
        raise OSError(f"no TLS within {SECONDS:.0f} s at {host} port {port}") from fault
    found = writer.get_extra_info("ssl_object")
    writer.close()
    assert isinstance(found, ssl.SSLObject)
    return found
