"""The schema's history. `HEAD` is the newest revision, so that a start with a current database need not load Alembic."""

HEAD = "0005"
