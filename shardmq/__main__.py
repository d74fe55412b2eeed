"""`python -m shardmq` is the command `shardmq`."""

from shardmq.cmd.main import main

if __name__ == "__main__":
    main()
