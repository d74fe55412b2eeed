"""Who gets a queue's messages."""
