"""The REST side of the wire contract: one blueprint a part, on one foundation of types, errors and callers."""
