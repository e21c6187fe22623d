"""Where the commands of an operator print. Apart, because the service does without Rich, which takes 3 MiB."""

from __future__ import annotations

from rich.console import Console

stdout_console = Console(highlight=False, soft_wrap=True)
