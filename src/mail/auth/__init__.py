"""Callers and their tokens: the built-in authority, an external one, and the checks of routes."""
