"""Where the stream of the audit log goes: syslog or HTTP."""
