"""The firmwares we understand: one module each, all with the same four functions."""
