"""How the service writes to people: SMTP, or the log where there is no SMTP."""
