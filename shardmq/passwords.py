"""Passwords as salted scrypt hashes (RFC 7914): `scrypt$n$r$p$salt$hash`, salt and hash in hexadecimal."""

import hashlib
import hmac
import secrets
from typing import Final

COST: Final = 2**14
BLOCK_SIZE: Final = 8
PARALLELISM: Final = 1
"""RFC 7914's parameters for interactive logins: 16 MB and about 40 ms a try."""

SALT_BYTES: Final = 16
MEMORY_BYTES_MAX: Final = 64 << 20
"""What one hash may take; a hash written with a cost above it is none of ours."""


def hash_password(password: str) -> str:
    """A password's hash, with a salt of its own."""
    salt = secrets.token_bytes(SALT_BYTES)
    digest = _digest(password, salt, COST, BLOCK_SIZE, PARALLELISM)
    return f"scrypt${COST}${BLOCK_SIZE}${PARALLELISM}${salt.hex()}${digest.hex()}"


def verify_password(password: str, encoded: str) -> bool:
    """Whether it is the password of that hash. Takes 40 ms and lets other threads run meanwhile.

    Raises:
        ValueError: `encoded` is no hash of ours.
    """
    scheme, cost, block_size, parallelism, salt, digest = encoded.split("$")
    if scheme != "scrypt":
        raise ValueError(f"a password hash of the unknown scheme '{scheme}'")
    found = _digest(password, bytes.fromhex(salt), int(cost), int(block_size), int(parallelism))
    return hmac.compare_digest(found, bytes.fromhex(digest))


def _digest(password: str, salt: bytes, cost: int, block_size: int, parallelism: int) -> bytes:
    return hashlib.scrypt(
        password.encode(), salt=salt, n=cost, r=block_size, p=parallelism, maxmem=MEMORY_BYTES_MAX, dklen=32
    )
