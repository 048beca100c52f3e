"""Actions that send HTTP requests to public addresses."""
