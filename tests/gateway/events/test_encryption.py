"""Names in certificates, as events have them."""

import ssl

import pytest

from shardmq.gateway.events.encryption import NO_TLS, name_text, suite_facts, tls_facts


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ((), ""),
        (((("organizationName", "makers"),), (("commonName", "neil"),)), "CN=neil,O=makers"),
        (((("commonName", "neil"), ("countryName", "DE")),), "CN=neil+C=DE"),
        (((("commonName", "a,b+c\\d"),),), "CN=a\\,b\\+c\\\\d"),
        (((("commonName", "#1 "),),), "CN=\\#1\\ "),
        (((("postalCode", "12345"),),), "postalCode=12345"),
    ],
)
def test_a_name_is_shown_as_rabbitmq_does_with_its_last_part_first(
    name: tuple[tuple[tuple[str, str], ...], ...], text: str
) -> None:
    assert name_text(name) == text


ERLANG = """
TLS_AES_256_GCM_SHA384 any aes_256_gcm aead
TLS_CHACHA20_POLY1305_SHA256 any chacha20_poly1305 aead
TLS_AES_128_CCM_8_SHA256 any aes_128_ccm_8 aead
ECDHE-RSA-AES256-GCM-SHA384 ecdhe_rsa aes_256_gcm aead
ECDHE-ECDSA-CHACHA20-POLY1305 ecdhe_ecdsa chacha20_poly1305 aead
ECDHE-ECDSA-AES256-CCM8 ecdhe_ecdsa aes_256_ccm_8 aead
ECDHE-ECDSA-AES128-CCM ecdhe_ecdsa aes_128_ccm aead
ECDHE-RSA-AES256-SHA384 ecdhe_rsa aes_256_cbc sha384
ECDHE-ECDSA-AES128-SHA256 ecdhe_ecdsa aes_128_cbc sha256
DHE-RSA-CHACHA20-POLY1305 dhe_rsa chacha20_poly1305 aead
DHE-RSA-AES256-SHA256 dhe_rsa aes_256_cbc sha256
DHE-DSS-AES128-SHA dhe_dss aes_128_cbc sha
AES256-GCM-SHA384 rsa aes_256_gcm aead
AES128-SHA rsa aes_128_cbc sha
DES-CBC3-SHA rsa 3des_ede_cbc sha
RSA-PSK-AES256-CBC-SHA384 rsa_psk aes_256_cbc sha384
SRP-RSA-AES-256-CBC-SHA srp_rsa aes_256_cbc sha
DHE-PSK-AES128-CCM8 dhe_psk aes_128_ccm_8 aead
PSK-AES256-GCM-SHA384 psk aes_256_gcm aead
ADH-AES128-SHA256 dh_anon aes_128_cbc sha256
AECDH-AES256-SHA ecdh_anon aes_256_cbc sha
"""
"""Suites as OpenSSL names them, with key exchange, cipher and hash as Erlang's ssl:cipher_suites/2 lists them."""


@pytest.mark.parametrize("line", ERLANG.strip().splitlines())
def test_a_suite_is_told_apart_as_rabbitmq_names_its_parts(line: str) -> None:
    suite, *facts = line.split()
    assert list(suite_facts(suite)) == facts


def test_every_suite_that_this_python_speaks_has_a_name_for_each_part() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers("ALL:@SECLEVEL=0")
    suites = [suite["name"] for suite in context.get_ciphers()]
    assert [suite for suite in suites if "" in suite_facts(suite)] == []
    assert suite_facts("") == ("", "", "")


def test_a_plain_connection_has_the_headers_without_values() -> None:
    assert tls_facts(None) == NO_TLS
