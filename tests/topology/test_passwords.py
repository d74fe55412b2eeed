"""Passwords and their hashes, ours and RabbitMQ's."""

import base64
import hashlib

import pytest

from shardmq.errors import InvalidRequest
from shardmq.topology.passwords import (
    algorithm_of,
    check_hash,
    from_rabbitmq,
    hash_password,
    is_weak,
    to_rabbitmq,
    verify_password,
)

DOCUMENTED = "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"
"""The hash of "test12" in RabbitMQ's page on passwords."""


def test_only_the_password_verifies() -> None:
    encoded = hash_password("geheim-ß")
    assert encoded.startswith("scrypt$16384$8$1$")
    assert verify_password("geheim-ß", encoded)
    assert not verify_password("geheim", encoded)
    assert not verify_password("", encoded)


def test_the_same_password_is_hashed_with_another_salt() -> None:
    assert hash_password("a") != hash_password("a")


def test_a_hash_of_rabbitmqs_verifies_its_password() -> None:
    encoded = from_rabbitmq(DOCUMENTED)
    assert encoded.startswith("rabbit_sha256$908dc60a$")
    assert verify_password("test12", encoded)
    assert not verify_password("test13", encoded)


@pytest.mark.parametrize("algorithm", ["md5", "sha256", "sha512"])
def test_hashes_of_rabbitmqs_come_and_go_unchanged(algorithm: str) -> None:
    raw = base64.b64encode(b"salt" + hashlib.new(algorithm, b"saltsecret").digest()).decode()
    name = f"rabbit_password_hashing_{algorithm}"
    encoded = from_rabbitmq(raw, name)
    assert verify_password("secret", encoded)
    assert not verify_password("saltsecret", encoded)
    assert to_rabbitmq(encoded) == (raw, name)
    assert algorithm_of(raw) == name
    assert is_weak(encoded) == (algorithm == "md5")


def test_a_user_without_a_password_comes_and_goes_as_one() -> None:
    assert from_rabbitmq("") == ""
    assert to_rabbitmq("") == ("", "rabbit_password_hashing_sha256")


def test_rabbitmq_has_no_word_for_scrypt() -> None:
    assert to_rabbitmq(hash_password("a")) is None


@pytest.mark.parametrize(
    ("raw", "algorithm", "text"),
    [
        (DOCUMENTED, "rabbit_password_hashing_md4", "unknown hashing_algorithm 'rabbit_password_hashing_md4'"),
        (DOCUMENTED, "rabbit_password_hashing_md5", "4 and 32 bytes"),
        (DOCUMENTED, "rabbit_password_hashing_sha512", "4 and 32 bytes"),
        ("no base64!", "rabbit_password_hashing_sha256", "no base64"),
        ("c2FsdA==", "rabbit_password_hashing_sha256", "4 and 0 bytes"),
    ],
)
def test_what_is_no_hash_of_rabbitmqs_is_refused(raw: str, algorithm: str, text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        from_rabbitmq(raw, algorithm)


WRONG = [
    "plain",
    "md5$1$1$1$00$00",
    "scrypt$x$8$1$00$00",
    f"scrypt$15$8$1$00${'00' * 32}",
    f"scrypt$1099511627776$8$1$00${'00' * 32}",
    "rabbit_sha256$00$00",
    "rabbit_sha256$zz",
]


@pytest.mark.parametrize("encoded", ["", *WRONG])
def test_what_is_no_hash_raises(encoded: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        verify_password("a", encoded)


@pytest.mark.parametrize("encoded", WRONG)
def test_what_is_no_hash_is_not_taken_for_a_user(encoded: str) -> None:
    with pytest.raises(InvalidRequest, match="unknown password hash"):
        check_hash(encoded)


def test_no_password_is_a_way_to_let_nobody_in() -> None:
    check_hash("")
    check_hash(hash_password("x"))
