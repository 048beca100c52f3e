"""What travels between MAIL processes: answer shapes and event streams (``types``, ``sse``)."""
