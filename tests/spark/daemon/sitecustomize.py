"""Has the Pythons that Spark starts, on executors and by themselves for streams, import PySpark where it is compiled.

Spark puts itself in zips before that place, and each Python would compile what it needs of them anew: 0.8 of the 1.1
seconds of processor time that it takes to start. Spark waits ten seconds for it, which two busy cores can exceed.
"""

import sys

sys.path[:] = [place for place in sys.path if not place.endswith(("/pyspark.zip", "-src.zip"))]
