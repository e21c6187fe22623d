"""Secrets: the key ring, and what is signed, sealed and hashed with it."""
