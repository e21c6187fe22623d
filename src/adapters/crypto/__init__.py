"""Cryptography: the key ring, and signing, sealing and hashing with its keys."""
