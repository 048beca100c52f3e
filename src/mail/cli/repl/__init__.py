"""``mail client``: the commands that talk to a server, typed one by one or given at once."""
