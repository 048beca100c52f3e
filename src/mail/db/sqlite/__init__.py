"""The embedded durable store."""
