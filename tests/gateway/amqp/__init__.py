"""The room of AMQP 0-9-1: its codec, and a gateway that speaks it."""
