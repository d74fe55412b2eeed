"""Tests of OpenTelemetry: spans arrive at a receiver of OTLP over HTTP, and contexts in messages."""
