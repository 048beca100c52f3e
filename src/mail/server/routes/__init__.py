"""HTTP routes, one module per subject; each has an ``add_routes(app)``."""
