"""What the management process knows while it runs."""
