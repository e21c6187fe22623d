"""The supported firmwares: one module each, all with the same functions."""
