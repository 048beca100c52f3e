"""``mail client``: the commands that talk to a server, at a prompt or on the command line."""
