"""Arrow's values made from bytes are those that pyarrow makes of Python's, and nothing imports pandas for them."""

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmq.spark.write.literals import binaries, binary, boolean, booleans, integer, null, text

PROGRAM = """
import sys
import pyarrow as pa
from shardmq.spark.options import Options
from shardmq.spark.write.rows import RowSplitter

batches = list(pa.ipc.open_stream(open(sys.argv[1], "rb").read()))
options = Options(url="shardmq://x/", exchange="flights", routing_key="UA", priority=3, app_id="pricing", delay_ms=7)
pieces = list(RowSplitter(batches[0].schema.names, options).split(batches))
assert sum(piece.count for piece in pieces) == sum(batch.num_rows for batch in batches)
print(sorted({name.partition(".")[0] for name in sys.modules} & {"pandas", "pyarrow"}))
"""

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
COLUMNS = {
    "value": pa.array([b"a", b"b" * 300, b"c"], pa.binary()),
    "exchange": pa.array(["flights", None, "other"], pa.string()),
    "routing_key": pa.array(["UA", None, "AA"], pa.string()),
    "delay_ms": pa.array([0, None, 5], pa.int64()),
    "delivery_mode": pa.array([1, 2, None], pa.int32()),
    "priority": pa.array([1, None, 9], pa.int32()),
    "content_type": pa.array(["text/csv", None, "text/csv"], pa.string()),
    "message_id": pa.array(["1", "2", "3"], pa.string()),
    "timestamp": pa.array([NOON, None, NOON], pa.timestamp("us", "UTC")),
    "headers": pa.array([[("k", "v")], None, [("k", None)]], pa.map_(pa.string(), pa.string())),
}
RAW = {
    "value": COLUMNS["value"],
    "raw_properties": pa.array([b"\x81\xaddelivery_mode\x01", None, b"\x80"], pa.binary()),
}


@pytest.mark.parametrize("columns", [COLUMNS, {"value": COLUMNS["value"]}, RAW], ids=["all", "value", "raw"])
def test_a_task_imports_no_pandas(columns: dict[str, pa.Array], tmp_path: Path) -> None:
    batch = pa.record_batch(columns)
    with pa.ipc.new_stream(str(tmp_path / "rows"), batch.schema) as file:
        file.write_batch(batch)
    program = [sys.executable, "-c", PROGRAM, str(tmp_path / "rows")]
    done = subprocess.run(program, capture_output=True, text=True, check=False, timeout=60)
    assert (done.stdout, done.stderr) == ("['pyarrow']\n", "")


@given(st.lists(st.none() | st.binary(max_size=20), max_size=40))
def test_bytes_and_nulls_are_an_array(values: list[bytes | None]) -> None:
    made = binaries(values)
    made.validate(full=True)
    assert made.equals(pa.array(values, pa.binary()))


@given(st.integers(-128, 127), st.sampled_from([pa.int8(), pa.int32(), pa.int64()]))
def test_numbers_are_scalars_of_their_type(value: int, kind: pa.DataType) -> None:
    assert integer(value, kind).equals(pa.scalar(value, kind))
    assert integer(value * 2**50).equals(pa.scalar(value * 2**50, pa.int64()))


@given(st.lists(st.booleans(), max_size=40))
def test_truths_are_an_array(values: list[bool]) -> None:
    assert booleans(values).equals(pa.array(values, pa.bool_()))


def test_other_values_are_scalars() -> None:
    assert binary(b"\0x").equals(pa.scalar(b"\0x", pa.binary()))
    assert [boolean(value).as_py() for value in (True, False)] == [True, False]
    assert [null(kind).equals(pa.scalar(None, kind)) for kind in (pa.binary(), pa.int32())] == [True, True]
    for kind in (pa.string(), pa.large_string()):
        assert text("häuser", kind).equals(pa.scalar("häuser", kind))
