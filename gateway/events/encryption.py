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
    "ssl_key_exchange": "",
    "ssl_cipher": "",
    "ssl_hash": "",
    "peer_cert_subject": "",
    "peer_cert_issuer": "",
    "peer_cert_validity": "",
}


KEY_EXCHANGES: Final = (
    ("TLS_", "any"),
    ("ECDHE-PSK-", "ecdhe_psk"),
    ("ECDHE-ECDSA-", "ecdhe_ecdsa"),
    ("ECDHE-", "ecdhe_rsa"),
    ("AECDH-", "ecdh_anon"),
    ("DHE-PSK-", "dhe_psk"),
    ("DHE-DSS-", "dhe_dss"),
    ("DHE-", "dhe_rsa"),
    ("ADH-", "dh_anon"),
    ("RSA-PSK-", "rsa_psk"),
    ("PSK-", "psk"),
    ("SRP-RSA-", "srp_rsa"),
    ("SRP-DSS-", "srp_dss"),
    ("SRP-", "srp_anon"),
)
"""How OpenSSL's names of suites begin, and what RabbitMQ calls that key exchange; the others are `rsa`."""

AEAD: Final = ("GCM", "CCM", "POLY1305")
"""Ciphers that authenticate by themselves: there is no hash for that, and RabbitMQ says `aead`."""

HASHES: Final[Mapping[str, str]] = {"SHA": "sha", "SHA256": "sha256", "SHA384": "sha384", "MD5": "md5"}


def suite_facts(suite: str) -> tuple[str, str]:
    """The key exchange and the hash of a suite that OpenSSL names so, as RabbitMQ names them; "" for neither known.

    In TLS 1.3 a suite does not say the key exchange: any goes with it.
    """
    if not suite:
        return "", ""
    exchange = next((name for beginning, name in KEY_EXCHANGES if suite.startswith(beginning)), "rsa")
    if any(word in suite for word in AEAD):
        return exchange, "aead"
    return exchange, HASHES.get(suite.rpartition("-")[2], "")


def tls_facts(tls: ssl.SSLObject | None) -> Mapping[str, str]:
    """The encryption of a connection, and its client's verified certificate; "" for what there is not.

    The cipher is the whole suite, as OpenSSL names it.
    """
    if tls is None:
        return NO_TLS
    suite = (tls.cipher() or ("",))[0]
    exchange, by_hash = suite_facts(suite)
    facts = {**NO_TLS, "ssl_protocol": (tls.version() or "").lower(), "ssl_cipher": suite}
    facts |= {"ssl_key_exchange": exchange, "ssl_hash": by_hash}
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
