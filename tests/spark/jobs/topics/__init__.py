"""Whole jobs on topics."""
