"""The engine behind `domain.rules.engine_port`: native (the extension `_native`) and reference (readable Python)."""
