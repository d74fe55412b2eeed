"""The HTTP API, over a broker and a management process."""
