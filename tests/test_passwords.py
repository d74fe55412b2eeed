"""Passwords and their hashes."""

import pytest

from shardmq.passwords import hash_password, verify_password


def test_only_the_password_verifies() -> None:
    encoded = hash_password("geheim-ß")
    assert encoded.startswith("scrypt$16384$8$1$")
    assert verify_password("geheim-ß", encoded)
    assert not verify_password("geheim", encoded)
    assert not verify_password("", encoded)


def test_the_same_password_is_hashed_with_another_salt() -> None:
    assert hash_password("a") != hash_password("a")


@pytest.mark.parametrize("encoded", ["", "plain", "md5$1$1$1$00$00", "scrypt$x$8$1$00$00"])
def test_what_is_no_hash_raises(encoded: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        verify_password("a", encoded)
