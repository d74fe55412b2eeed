"""What the documents say: examples run, links lead somewhere."""
