"""The units and settings of deploy/: understood, and a broker that works when their commands are run."""
