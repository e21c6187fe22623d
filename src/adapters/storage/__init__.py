"""Storage. `sql` implements the repository ports for SQLite and PostgreSQL; both pass the same contract tests."""
