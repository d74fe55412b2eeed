"""Spark's own daemon, which has imported already what its workers need: they are its forks. In tests many fail on
purpose, and the next one would compile all it needs of Spark again, as that comes in zips; so these go, too.
"""

import importlib
import sys

WORKERS = ("commit_data_source_write", "create_data_source", "plan_data_source_read", "write_into_data_source")

sys.path[:] = [place for place in sys.path if not place.endswith(".zip")]
for name in ("pandas", "pyarrow.compute", "pyspark.worker", *(f"pyspark.sql.worker.{worker}" for worker in WORKERS)):
    importlib.import_module(name)
for name in ("shardmq.spark.read.reader", "shardmq.spark.write.writer"):
    importlib.import_module(name)
for place in [each for each in sys.path_importer_cache if each.endswith(".zip")]:
    del sys.path_importer_cache[place]  # its table of contents would be read in every fork again

if __name__ == "__main__":
    importlib.import_module("pyspark.daemon").manager()
