"""The engine behind `domain.rules.ports`: native (the extension `_native`) and reference (readable Python)."""
