"""Example agents: a supervisor, a weather and a math worker, and scripts to run them offline."""
