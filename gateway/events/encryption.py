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

CIPHERS: Final = (
    (re.compile(r"CHACHA20.POLY1305"), "chacha20_poly1305"),
    (re.compile(r"(AES|ARIA|CAMELLIA)[-_]?(128|256)[-_](GCM|CCM)"), "{}_{}_{}"),
    (re.compile(r"(AES|ARIA|CAMELLIA)[-_]?(128|256)"), "{}_{}_cbc"),
    (re.compile(r"DES-CBC3"), "3des_ede_cbc"),
    (re.compile(r"NULL"), "null"),
)
"""What OpenSSL's names of suites say of the cipher, and what Erlang, and with it RabbitMQ, calls that."""

SHORT_TAG: Final = re.compile(r"CCM_?8")
"""A suite whose ciphers authenticate with 8 bytes, where others do with 16."""

HASHES: Final[Mapping[str, str]] = {"SHA": "sha", "SHA256": "sha256", "SHA384": "sha384", "MD5": "md5"}


def suite_facts(suite: str) -> tuple[str, str, str]:
    """The key exchange, the cipher and the hash of a suite that OpenSSL names so, in RabbitMQ's words; "" if unknown.

    In TLS 1.3 a suite does not say the key exchange: any goes with it. RabbitMQ shows what Erlang's ssl:cipher_suites/2
    lists: {ecdhe_rsa, aes_256_gcm, aead}.
    """
    if not suite:
        return "", "", ""
    exchange = next((name for beginning, name in KEY_EXCHANGES if suite.startswith(beginning)), "rsa")
    cipher = _cipher(suite)
    if any(word in suite for word in AEAD):
        return exchange, cipher, "aead"
    return exchange, cipher, HASHES.get(suite.rpartition("-")[2], "")


def _cipher(suite: str) -> str:
    for pattern, name in CIPHERS:
        if found := pattern.search(suite):
            return name.format(*map(str.lower, found.groups())) + ("_8" if SHORT_TAG.search(suite) else "")
    return ""


def tls_facts(tls: ssl.SSLObject | None) -> Mapping[str, str]:
    """The encryption of a connection, and its client's verified certificate; "" for what there is not."""
    if tls is None:
        return NO_TLS
    suite = (tls.cipher() or ("",))[0]
    exchange, cipher, by_hash = suite_facts(suite)
    facts = {**NO_TLS, "ssl_protocol": (tls.version() or "").lower(), "ssl_cipher": cipher}
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
