"""Adapters of the native extension `_native`, and of the reference definitions in Python."""
