"""`python -m app` is `latchboard`."""

from __future__ import annotations

from app.cli.main import main

main()
