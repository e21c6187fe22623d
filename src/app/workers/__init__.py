"""The workers: one loop a module, each with an owner (the supervisor) and a way to stop."""
