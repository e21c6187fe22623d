"""Outgoing mail: SMTP, or the log when no SMTP server is configured."""
