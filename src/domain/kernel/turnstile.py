"""One at a time: between the engine's verdict on a batch and the commit that stores it, no rule may change.

Otherwise a rule put anew would start from a stored state that the engine has already left, and fire twice.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import TypeAlias

EngineCommitLock: TypeAlias = AbstractAsyncContextManager[None]
"""Port: entered by whoever moves the engine and the database together (an `asyncio.Lock` outside)."""
