"""How shardmq is installed: from a clone, from a wheel, from a source distribution."""
