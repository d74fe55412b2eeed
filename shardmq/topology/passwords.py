"""Users' passwords as salted hashes, ours and RabbitMQ's.

    scrypt$n$r$p$salt$hash      RFC 7914, for every password set here
    rabbit_sha256$salt$hash     SHA-256 of salt (4 bytes) and password, from RabbitMQ's definitions
    rabbit_sha512$salt$hash     the same with SHA-512
    rabbit_md5$salt$hash        the same with MD5, as RabbitMQ had them before 3.6

Salts and hashes are hexadecimal.
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
"""Parameters of scrypt for interactive logins (RFC 7914): 16 MB and about 40 ms a try."""

SALT_BYTES: Final = 16
"""Length of the salt of new hashes."""

MEMORY_BYTES_MAX: Final = 64 << 20
"""The most memory that one try may take. Hashes whose parameters need more are refused."""

PARALLELISM_MAX: Final = 4
"""The most that a hash may ask for; the time of a try grows with it."""

RABBIT_SALT_BYTES: Final = 4
"""Length of the salt in RabbitMQ's hashes."""

RABBIT_ALGORITHMS: Final = {
    "rabbit_password_hashing_sha256": "rabbit_sha256",
    "rabbit_password_hashing_sha512": "rabbit_sha512",
    "rabbit_password_hashing_md5": "rabbit_md5",
}
"""The `hashing_algorithm` of a user in RabbitMQ's definitions, and the prefix of its hashes here."""

RABBIT_SIZES: Final = {16: "rabbit_password_hashing_md5", 64: "rabbit_password_hashing_sha512"}
"""What a digest of so many bytes is of, where definitions do not say; SHA-256 otherwise."""

WEAK_SCHEMES: Final = ("rabbit_md5",)
"""Of hashes that let their passwords in, and give them away to whoever reads them: a day's guesses cost nothing."""


def hash_password(password: str) -> str:
    """Hash a password with a new salt."""
    salt = secrets.token_bytes(SALT_BYTES)
    digest = _scrypt(password, salt, COST, BLOCK_SIZE, PARALLELISM)
    return f"scrypt${COST}${BLOCK_SIZE}${PARALLELISM}${salt.hex()}${digest.hex()}"


def rabbitmq_hash(password: str) -> str:
    """Hash a password with a new salt as RabbitMQ's `password_hash` has it: SHA-256, in base64."""
    salt = secrets.token_bytes(RABBIT_SALT_BYTES)
    return base64.b64encode(salt + hashlib.sha256(salt + password_bytes(password)).digest()).decode()


def verify_password(password: str, encoded: str) -> bool:
    """Whether a password is that of a hash. Takes 40 ms for scrypt; other threads can run meanwhile.

    Raises:
        ValueError: `encoded` is no hash of a known scheme.
    """
    digest, found = _read(encoded)
    return hmac.compare_digest(found(password), digest)


def check_hash(encoded: str) -> None:
    """Make sure that passwords can be verified with a hash. "" passes: it lets nobody in by password.

    Raises:
        InvalidRequest: it is no hash of a known scheme.
    """
    try:
        if encoded:
            _read(encoded)
    except ValueError as error:
        raise InvalidRequest(f"unknown password hash: {error}") from error


def from_rabbitmq(password_hash: str, algorithm: str = "rabbit_password_hashing_sha256") -> str:
    """Convert the hash of a user in RabbitMQ's definitions to the form in which it is stored here.

    Args:
        password_hash: base64 of salt and digest; "" for a user without a password.
        algorithm: the user's `hashing_algorithm`.

    Raises:
        InvalidRequest: the algorithm is unknown, or it is no such hash.
    """
    scheme = RABBIT_ALGORITHMS.get(algorithm)
    if scheme is None:
        raise InvalidRequest(
            f"unknown hashing_algorithm '{algorithm}'; known are {', '.join(RABBIT_ALGORITHMS)}; set the password anew"
        )
    try:
        raw = base64.b64decode(password_hash, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidRequest(f"password_hash is no base64: {error}") from error
    if not raw:
        return ""
    encoded = f"{scheme}${raw[:RABBIT_SALT_BYTES].hex()}${raw[RABBIT_SALT_BYTES:].hex()}"
    check_hash(encoded)
    return encoded


def algorithm_of(password_hash: str) -> str:
    """The `hashing_algorithm` of a hash that comes without one, by its size.

    Raises:
        InvalidRequest: it is no base64.
    """
    try:
        size = len(base64.b64decode(password_hash, validate=True)) - RABBIT_SALT_BYTES
    except (binascii.Error, ValueError) as error:
        raise InvalidRequest(f"unknown password hash: {error}") from error
    return RABBIT_SIZES.get(size, "rabbit_password_hashing_sha256")


def is_weak(encoded: str) -> bool:
    """Whether a stored hash is of a scheme that protects no password any more."""
    return encoded.partition("$")[0] in WEAK_SCHEMES


def to_rabbitmq(encoded: str) -> tuple[str, str] | None:
    """Convert a stored hash to a `password_hash` and `hashing_algorithm`; None for scrypt, which RabbitMQ has not."""
    if not encoded:
        return "", next(iter(RABBIT_ALGORITHMS))
    scheme, _, rest = encoded.partition("$")
    for algorithm, prefix in RABBIT_ALGORITHMS.items():
        if scheme == prefix:
            return base64.b64encode(bytes.fromhex(rest.replace("$", ""))).decode(), algorithm
    return None


def _read(encoded: str) -> tuple[bytes, Callable[[str], bytes]]:
    """The digest in a hash, and the function that makes such a digest of a password.

    Raises:
        ValueError: it is no hash of a known scheme.
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
    return digest, lambda password: hashlib.new(algorithm, salt + password_bytes(password)).digest()


def password_bytes(password: str) -> bytes:
    """A password's bytes. AMQP clients send bytes; those that are not UTF-8 come here as surrogates."""
    return password.encode(errors="surrogateescape")


def _scrypt(password: str, salt: bytes, cost: int, block_size: int, parallelism: int) -> bytes:
    return hashlib.scrypt(
        password_bytes(password), salt=salt, n=cost, r=block_size, p=parallelism, maxmem=MEMORY_BYTES_MAX, dklen=32
    )


_SCHEMES: Final[dict[str, Callable[[list[str]], tuple[bytes, Callable[[str], bytes]]]]] = {
    "scrypt": _read_scrypt,
    "rabbit_sha256": lambda fields: _read_rabbit("sha256", fields),
    "rabbit_sha512": lambda fields: _read_rabbit("sha512", fields),
    "rabbit_md5": lambda fields: _read_rabbit("md5", fields),
}
