"""A broker as Spark's processes use it: the connection, and its frames."""
