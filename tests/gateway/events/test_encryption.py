"""Names in certificates, as events have them."""

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


@pytest.mark.parametrize(
    ("suite", "facts"),
    [
        ("TLS_AES_256_GCM_SHA384", ("any", "aead")),
        ("ECDHE-RSA-AES256-GCM-SHA384", ("ecdhe_rsa", "aead")),
        ("ECDHE-ECDSA-CHACHA20-POLY1305", ("ecdhe_ecdsa", "aead")),
        ("DHE-RSA-AES256-SHA256", ("dhe_rsa", "sha256")),
        ("ECDHE-RSA-AES256-SHA384", ("ecdhe_rsa", "sha384")),
        ("AES256-SHA", ("rsa", "sha")),
        ("PSK-AES128-CCM8", ("psk", "aead")),
        ("", ("", "")),
    ],
)
def test_a_suite_is_told_apart_as_rabbitmq_names_its_parts(suite: str, facts: tuple[str, str]) -> None:
    assert suite_facts(suite) == facts


def test_a_plain_connection_has_the_headers_without_values() -> None:
    assert tls_facts(None) == NO_TLS
