"""Tests of the documents: examples run, links lead somewhere, figures are those measured."""
