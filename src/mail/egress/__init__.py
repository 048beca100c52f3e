"""The one way out: requests to addresses that other people or agents chose."""
