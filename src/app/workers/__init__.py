"""The background loops: each has an owner, the supervisor, and a way to stop."""
