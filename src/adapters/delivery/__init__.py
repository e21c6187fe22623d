"""HTTP delivery to receivers we know nothing about: the courier, and the guard that keeps it out of our own network."""
