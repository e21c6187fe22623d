"""A transaction is used otherwise than it was opened."""

from __future__ import annotations


class ReadOnlyTransactionError(RuntimeError):
    """A write inside `read()`: a programming error, never the fault of a request."""

    def __init__(self) -> None:
        super().__init__("This transaction only reads. Open it with write() to change something.")


class SecondReadStatementError(RuntimeError):
    """A second statement in `read(one_statement=True)`, where it might see another state than the first."""

    def __init__(self) -> None:
        super().__init__("This read was opened for one statement. Open it with read() to run several.")


class NestedWriteError(RuntimeError):
    """A task inside `write()` opened another one and would wait for itself."""

    def __init__(self) -> None:
        super().__init__("This task is already inside write(). Pass its transaction on instead of opening another one.")


class TransactionClosedError(RuntimeError):
    """A transaction was used after its block ended."""

    def __init__(self) -> None:
        super().__init__("This transaction has ended. Use a transaction only inside its `async with` block.")
