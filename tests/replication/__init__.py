"""What several hosts are made of."""
