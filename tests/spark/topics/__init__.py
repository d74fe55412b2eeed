"""Topics read in batches and as streams."""
