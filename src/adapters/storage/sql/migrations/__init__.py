"""The steps from each released schema to the next. `HEAD` is the newest: what a new database is stamped with, and what a start
compares, so that it loads Alembic only for an upgrade."""

HEAD = "v0001"
