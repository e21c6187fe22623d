"""The schema's history. `HEAD` is the newest revision; a start with a current database compares it and does not load Alembic."""

HEAD = "0036"
