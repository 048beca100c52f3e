"""Databases with tasks in every state, as a version without a ledger of questions wrote them."""
