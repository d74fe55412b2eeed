"""The gateway, spoken to in raw frames: over real processes, or on a stage.

rawclient.py     a client of the native protocol that says what it likes and sees every answer
stage.py         a gateway whose coordinator and shards are played by the test, over the real bus
test_server.py   TLS on the clients' port

The folders are the gateway's.
"""
