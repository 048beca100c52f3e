"""Rules on plain arguments and an owner, shared by tools, HTTP routes and commands; no engine."""
