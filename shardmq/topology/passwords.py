"""Passwords as salted hashes: ours, and those that RabbitMQ's definitions bring along.

scrypt$n$r$p$salt$hash      RFC 7914, salt and hash in hexadecimal; every password set here
rabbit_sha256$salt$hash     RabbitMQ's: SHA-256 of salt (4 bytes) and password
rabbit_sha512$salt$hash     the same with SHA-512
"""

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Callable
from typing import Final

from shardmq.errors import InvalidRequest

COST: Final = 2**14
BLOCK_SIZE: Final = 8
PARALLELISM: Final = 1
"""RFC 7914's parameters for interactive logins: 16 MB and about 40 ms a try."""

SALT_BYTES: Final = 16
MEMORY_BYTES_MAX: Final = 64 << 20
"""What one hash may take; a hash written with a cost above it is none of ours."""

PARALLELISM_MAX: Final = 4
"""Each of them takes as long again."""

RABBIT_SALT_BYTES: Final = 4
RABBIT_ALGORITHMS: Final = {
    "rabbit_password_hashing_sha256": "rabbit_sha256",
    "rabbit_password_hashing_sha512": "rabbit_sha512",
}
"""`hashing_algorithm` of a user in RabbitMQ's definitions, and our prefix for it."""


def hash_password(password: str) -> str:
    """A password's hash, with a salt of its own."""
    salt = secrets.token_bytes(SALT_BYTES)
    digest = _scrypt(password, salt, COST, BLOCK_SIZE, PARALLELISM)
    return f"scrypt${COST}${BLOCK_SIZE}${PARALLELISM}${salt.hex()}${digest.hex()}"


def verify_password(password: str, encoded: str) -> bool:
    """Whether it is the password of that hash. Takes 40 ms for ours and lets other threads run meanwhile.

    Raises:
        ValueError: `encoded` is no hash that is known here.
    """
    digest, found = _read(encoded)
    return hmac.compare_digest(found(password), digest)


def check_hash(encoded: str) -> None:
    """Refuse what no password could be verified with. "" is fine: it lets nobody in by password.

    Raises:
        InvalidRequest: it is no hash that is known here.
    """
    try:
        if encoded:
            _read(encoded)
    except ValueError as fault:
        raise InvalidRequest(f"no password hash that is known here: {fault}") from fault


def from_rabbitmq(password_hash: str, algorithm: str = "rabbit_password_hashing_sha256") -> str:
    """The hash of a user in RabbitMQ's definitions, as it is kept here.

    Args:
        password_hash: base64 of salt and digest; "" is a user without a password.
        algorithm: the user's `hashing_algorithm`.

    Raises:
        InvalidRequest: an algorithm that is not known here (RabbitMQ's old MD5 is none), or no such hash.
    """
    scheme = RABBIT_ALGORITHMS.get(algorithm)
    if scheme is None:
        raise InvalidRequest(
            f"unknown hashing_algorithm '{algorithm}'; known are {', '.join(RABBIT_ALGORITHMS)}; set the password anew"
        )
    try:
        raw = base64.b64decode(password_hash, validate=True)
    except (binascii.Error, ValueError) as fault:
        raise InvalidRequest(f"password_hash is no base64: {fault}") from fault
    if not raw:
        return ""
    encoded = f"{scheme}${raw[:RABBIT_SALT_BYTES].hex()}${raw[RABBIT_SALT_BYTES:].hex()}"
    check_hash(encoded)
    return encoded


def to_rabbitmq(encoded: str) -> tuple[str, str] | None:
    """The other way round: (password_hash, hashing_algorithm), or None for a hash RabbitMQ does not know (ours)."""
    if not encoded:
        return "", next(iter(RABBIT_ALGORITHMS))
    scheme, _, rest = encoded.partition("$")
    for algorithm, prefix in RABBIT_ALGORITHMS.items():
        if scheme == prefix:
            return base64.b64encode(bytes.fromhex(rest.replace("$", ""))).decode(), algorithm
    return None


def _read(encoded: str) -> tuple[bytes, Callable[[str], bytes]]:
    """A hash's digest, and how one of its kind is made of a password.

    Raises:
        ValueError: no hash that is known here.
    """
    scheme, *fields = encoded.split("$")
    reader = _SCHEMES.get(scheme)
    if reader is None:
        raise ValueError(f"a password hash of the unknown scheme '{scheme[:32]}'")
    return reader(fields)


def _read_scrypt(fields: list[str]) -> tuple[bytes, Callable[[str], bytes]]:
    cost, block_size, parallelism = map(int, fields[:3])
    salt, digest = map(bytes.fromhex, fields[3:])
    is_cost = cost > 1 and not cost & (cost - 1)
    is_bearable = 256 * cost * block_size <= MEMORY_BYTES_MAX and parallelism <= PARALLELISM_MAX  # half of it at most
    if not is_cost or min(block_size, parallelism) < 1 or not is_bearable or len(digest) != 32:
        raise ValueError(f"a scrypt hash with cost {cost}, block size {block_size}, parallelism {parallelism}")
    return digest, lambda password: _scrypt(password, salt, cost, block_size, parallelism)


def _read_rabbit(algorithm: str, fields: list[str]) -> tuple[bytes, Callable[[str], bytes]]:
    salt, digest = map(bytes.fromhex, fields)
    if len(salt) != RABBIT_SALT_BYTES or len(digest) != hashlib.new(algorithm).digest_size:
        raise ValueError(
            f"salt and hash are {len(salt)} and {len(digest)} bytes, which is no {algorithm} of RabbitMQ's"
        )
    return digest, lambda password: hashlib.new(algorithm, salt + _bytes(password)).digest()


def _bytes(password: str) -> bytes:
    """Passwords are bytes to AMQP clients; what of them is not UTF-8 comes as surrogates."""
    return password.encode(errors="surrogateescape")


def _scrypt(password: str, salt: bytes, cost: int, block_size: int, parallelism: int) -> bytes:
    return hashlib.scrypt(
        _bytes(password), salt=salt, n=cost, r=block_size, p=parallelism, maxmem=MEMORY_BYTES_MAX, dklen=32
    )


_SCHEMES: Final[dict[str, Callable[[list[str]], tuple[bytes, Callable[[str], bytes]]]]] = {
    "scrypt": _read_scrypt,
    "rabbit_sha256": lambda fields: _read_rabbit("sha256", fields),
    "rabbit_sha512": lambda fields: _read_rabbit("sha512", fields),
}
