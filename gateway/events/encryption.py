"""What a connection's TLS has agreed on, and whom its client's certificate names, by the names of RabbitMQ's events."""

import re
import ssl
import time
from collections.abc import Mapping
from typing import Any, Final

RDN_NAMES: Final[Mapping[str, str]] = {
    "commonName": "CN",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "stateOrProvinceName": "ST",
    "localityName": "L",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "emailAddress": "EMAILADDRESS",
    "serialNumber": "SERIALNUMBER",
}
"""Attributes of names in certificates, as RabbitMQ abbreviates them; others have OpenSSL's name."""

NO_TLS: Final[Mapping[str, str]] = {
    "ssl_protocol": "",
    "ssl_cipher": "",
    "peer_cert_subject": "",
    "peer_cert_issuer": "",
    "peer_cert_validity": "",
}


def tls_facts(tls: ssl.SSLObject | None) -> Mapping[str, str]:
    """The encryption of a connection, and its client's verified certificate; "" for what there is not.

    The cipher is the suite, as OpenSSL names it: Python does not tell the key exchange and the hash apart.
    """
    if tls is None:
        return NO_TLS
    facts = {**NO_TLS, "ssl_protocol": (tls.version() or "").lower(), "ssl_cipher": (tls.cipher() or ("",))[0]}
    certificate: Mapping[str, Any] | None = tls.getpeercert()
    if certificate:
        facts["peer_cert_subject"] = name_text(certificate.get("subject", ()))
        facts["peer_cert_issuer"] = name_text(certificate.get("issuer", ()))
        times = [_time_text(certificate[each]) for each in ("notBefore", "notAfter")]
        facts["peer_cert_validity"] = " - ".join(times)
    return facts


def name_text(name: tuple[tuple[tuple[str, str], ...], ...]) -> str:
    """A name in a certificate, as text: the last part first (RFC 4514, as RabbitMQ shows it)."""
    parts = ["+".join(f"{RDN_NAMES.get(key, key)}={_escaped(value)}" for key, value in part) for part in name]
    return ",".join(reversed(parts))


def _escaped(value: str) -> str:
    return re.sub(r'([,+"\\<>;]|^[# ]| $)', r"\\\1", value)


def _time_text(given: str) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ssl.cert_time_to_seconds(given)))
