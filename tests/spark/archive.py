"""Spark's classes as Java has them once they are loaded: with this archive, JVMs of the tests start in half the time.

    python archive.py FILE

A session does a little of all that tests do, and Java writes what it has loaded to FILE when it ends. JVMs of another
Java, or with other jars, see by themselves that it is not theirs and load classes as ever; as all do where there is
none.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

QUICK_JAVA: Final = (
    "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
"""Java is not worth warming up for tests: half the processor time goes into compiling what soon ends, and a third of
what is left into checking again that Spark's classes are ones."""

ARCHIVE: Final = Path(sys.prefix) / "spark-classes.jsa"
"""Where `make test` puts it, and tests look for it."""

SILENT: Final = "-Xlog:cds*=off"
"""Of classes that cannot be archived there are thousands of lines."""

WRITE_SECONDS_MAX: Final = 300.0
SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.log.level": "OFF",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def java_options() -> str:
    """Options for Spark's JVMs in tests."""
    return f"{QUICK_JAVA} {SILENT} -XX:SharedArchiveFile={ARCHIVE}" if ARCHIVE.exists() else QUICK_JAVA


def use_spark(folder: Path) -> subprocess.Popen[bytes]:
    """Batches, files, Arrow and a stream; returns the JVM, which ends when its standard input does."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    builder = SparkSession.Builder().master("local[2]").appName("classes of Spark")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    rows = spark.createDataFrame([(1, "a"), (2, "b")], "number int, name string")
    for kind in ("csv", "json", "parquet"):
        place = str(folder / kind)
        rows.write.format(kind).save(place)
        spark.read.schema(rows.schema).format(kind).load(place).groupBy("name").count().collect()
    rows.mapInArrow(lambda batches: batches, rows.schema).collect()
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    writer = source.writeStream.foreachBatch(lambda frame, _: frame.count())
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    gateway = SparkContext._gateway
    assert gateway is not None
    spark.stop()
    java: subprocess.Popen[bytes] = gateway.proc
    return java


def main(file: Path) -> None:
    """Make the archive; whole, or not at all."""
    written = file.with_suffix(".written")
    written.unlink(missing_ok=True)
    os.environ["SPARK_SUBMIT_OPTS"] = f"{QUICK_JAVA} {SILENT} -XX:ArchiveClassesAtExit={written}"
    os.environ["SPARK_LAUNCHER_OPTS"] = QUICK_JAVA
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with tempfile.TemporaryDirectory() as folder:
        java = use_spark(Path(folder))
        assert java.stdin is not None
        java.stdin.close()
        java.wait(WRITE_SECONDS_MAX)
    if written.exists():
        written.replace(file)
    else:
        print("this Java archives no classes: tests of Spark will take longer")


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
