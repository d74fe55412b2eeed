"""Names in certificates, as events have them."""

import pytest

from shardmq.gateway.events.encryption import NO_TLS, name_text, tls_facts


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


def test_a_plain_connection_has_the_headers_without_values() -> None:
    assert tls_facts(None) == NO_TLS
