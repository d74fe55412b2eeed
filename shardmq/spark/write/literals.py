"""Values of Python's as Arrow has them, made from their bytes.

pyarrow imports pandas, where that is installed, as soon as it converts an object of Python's: that takes 0.35 s of each
Python that Spark starts. What is made from buffers is not looked at.
"""

from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

import pyarrow as pa

_INT64: Final = pa.int64()
_FORMATS: Final = {pa.int8(): "b", pa.int32(): "i", _INT64: "q"}


def binaries(values: Sequence[bytes | None]) -> pa.Array:
    """An array of bytes and nulls."""
    present = [value for value in values if value is not None]
    offsets = array("i", accumulate([0 if value is None else len(value) for value in values], initial=0))
    bits = None if len(present) == len(values) else _bits([value is not None for value in values])
    return pa.Array.from_buffers(
        pa.binary(), len(values), [bits, pa.py_buffer(offsets), pa.py_buffer(b"".join(present))]
    )


def binary(value: bytes) -> pa.Scalar:
    """Bytes as a scalar."""
    return binaries([value])[0]


def text(value: str, kind: pa.DataType) -> pa.Scalar:
    """A text as a scalar of one of Arrow's types of strings."""
    return binaries([value.encode()]).cast(kind)[0]


def integer(value: int, kind: pa.DataType = _INT64) -> pa.Scalar:
    """A whole number of 8, 32 or 64 bits as a scalar."""
    return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(array(_FORMATS[kind], [value]))])[0]


def booleans(values: Sequence[bool]) -> pa.Array:
    """An array of true and false."""
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, _bits(values)])


def boolean(value: bool) -> pa.Scalar:
    """True or false as a scalar."""
    return booleans([value])[0]


def null(kind: pa.DataType) -> pa.Scalar:
    """A null of a type."""
    return pa.nulls(1, kind)[0]


def _bits(values: Sequence[bool]) -> pa.Buffer:
    digits = "".join(["1" if value else "0" for value in reversed(values)])
    return pa.py_buffer(int(digits or "0", 2).to_bytes((len(values) + 7) // 8, "little"))
