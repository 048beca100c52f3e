"""Logging: set-up for entry points, formats, and redaction of secrets."""
