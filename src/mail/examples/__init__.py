"""Example agents and whole teams of them, and scripts that play them offline."""
