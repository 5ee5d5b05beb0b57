"""A real web server for tests, on a loopback address: what it answers is a table, what it was asked is a list."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Site:
    """A running server."""

    def __init__(self, server: ThreadingHTTPServer) -> None:
        self.port = server.server_address[1]
        self.pages: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []

    def page(self, path: str, body: bytes, status: int = 200, **headers: str) -> str:
        """Answer this path (`content_type=…` is a header); return its URL."""
        named = {name.replace("_", "-").title(): value for name, value in headers.items()}
        self.pages[path] = (status, {"Content-Length": str(len(body))} | named, body)
        return self.url(path)

    def redirect(self, path: str, to: str, status: int = 302) -> str:
        """Send whoever asks for this path elsewhere; return its URL."""
        return self.page(path, b"", status, location=to)

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    @property
    def paths(self) -> list[str]:
        """What was asked for, in order."""
        return [path for path, _ in self.asked]


@contextmanager
def serving(context: Any = None) -> Iterator[Site]:
    """Run a server (with TLS under this context) until the end of the block."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            site.asked.append((self.path, dict(self.headers)))
            status, headers, body = site.pages.get(self.path, (404, {"Content-Length": "0"}, b""))
            self.send_response_only(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            return

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            return  # a client that breaks off is what some tests are about

    server = Server(("127.0.0.1", 0), Handler)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    site = Site(server)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
