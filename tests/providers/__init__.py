"""Whole swarms over LiteLLM and HTTP to a provider that speaks each of the wire formats."""
