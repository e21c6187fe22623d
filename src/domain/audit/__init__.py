"""Proof of the event log: records linked by hash, seals signed over them, export and verification.

`docs/reference/audit-format.md` defines the format for others; nothing here may change what it says."""
