"""Stands in for a ClickHouse server: the engine itself, in process by `chdb`, behind as much of ClickHouse's HTTP interface as the
service uses. What the server adds, such as its users and its replication, is not tested.

It runs in an environment of its own, which `support.clickhouse` finds: `python clickhouse_server.py FOLDER PORT`.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

USER, PASSWORD, DATABASE = "latchboard", "secret-of-tests", "history"
IGNORED = {"wait_end_of_query", "database", "query"}


def main(folder: str, port: int) -> None:
    from chdb import session  # type: ignore[import-not-found]

    engine = session.Session(folder)
    engine.query(f"CREATE DATABASE IF NOT EXISTS {DATABASE} ENGINE = Atomic")
    engine.query(f"USE {DATABASE}")
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            values = {name: found[-1] for name, found in parse_qs(urlsplit(self.path).query).items()}
            status, answer = self._run(body, values)
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(answer)

        def _run(self, body: bytes, values: dict[str, str]) -> tuple[int, bytes]:
            if (self.headers.get("X-ClickHouse-User"), self.headers.get("X-ClickHouse-Key")) != (USER, PASSWORD):
                return 403, b"Code: 516. DB::Exception: Authentication failed."
            if values.get("database") != DATABASE:
                return 404, b"Code: 81. DB::Exception: Database does not exist."
            parameters = {name[6:]: value for name, value in values.items() if name.startswith("param_")}
            settings = {name: value for name, value in values.items() if name not in IGNORED and not name.startswith("param_")}
            statement = (values["query"].encode() + b"\n" + body if "query" in values else body).decode()
            with lock:
                try:
                    for name, value in settings.items():
                        engine.query(f"SET {name} = {value}")
                    result = engine.query(statement, "JSONCompactEachRow", params=parameters)
                    return 200, bytes(result.bytes() or b"")
                except Exception as error:
                    return 500, str(error).encode()

        def log_message(self, *_: Any) -> None:
            pass

    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
