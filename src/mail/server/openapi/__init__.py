"""The OpenAPI document: `document` makes it of the routes, the types and the words beside it."""
