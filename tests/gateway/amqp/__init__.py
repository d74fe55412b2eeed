"""A gateway that speaks AMQP 0-9-1."""
