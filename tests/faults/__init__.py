"""Processes die while traffic runs."""
