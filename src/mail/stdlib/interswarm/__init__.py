"""Actions that read the public routes of other MAIL servers."""
