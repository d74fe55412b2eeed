"""Rules that say what is wrong, provoked over real processes."""
