"""A hub on this machine: the few addresses that are asked of one, with every byte counted and every fault to order."""

import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass(frozen=True)
class Sparse:
    """A file of any size: its first bytes, and zeros after them."""

    start: bytes
    size: int

    def part(self, begin: int, end: int) -> bytes:
        return self.start[begin:end].ljust(end - begin, b"\0")


@dataclass(frozen=True)
class Asked:
    """One request: at which host, for what, and with what."""

    host: str
    path: str
    span: str | None
    token: str | None


@dataclass
class Fault:
    """What becomes of the next requests whose path holds a text."""

    path: str
    times: int
    status: int
    headers: dict[str, str]
    act: Callable[["Handler"], None] | None


class Hub:
    """Models by name, as a hub serves them; weights come from another host, as from a storage."""

    def __init__(self) -> None:
        self.models: dict[str, dict[str, bytes | Sparse]] = {}
        self.revisions = {"main": COMMIT, COMMIT: COMMIT}
        self.gated: set[str] = set()
        self.asked: list[Asked] = []
        self.sent = 0  # bytes of bodies
        self.faults: list[Fault] = []
        self.ranges = True
        self.address = ""
        self.done = threading.Event()  # nobody waits any longer
        self.lock = threading.Lock()

    def fault(self, path: str, status: int = 0, times: int = 1, act: Any = None, **headers: str) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.faults.append(Fault(path, times, status, named, act))

    def paths(self) -> list[str]:
        return [each.path for each in self.asked]

    def next_fault(self, path: str) -> Fault | None:
        with self.lock:
            found = next((each for each in self.faults if each.times and each.path in path), None)
            if found is not None:
                found.times -= 1
            return found


def listed(files: dict[str, bytes | Sparse]) -> list[dict[str, Any]]:
    """Files as a hub lists them."""
    found = []
    for name, content in files.items():
        if isinstance(content, Sparse):
            lfs = {"sha256": hashlib.sha256(content.start).hexdigest(), "size": content.size}
            found.append({"rfilename": name, "size": content.size, "blobId": "0" * 40, "lfs": lfs})
        else:
            blob = hashlib.sha1(b"blob %d\0%b" % (len(content), content)).hexdigest()
            found.append({"rfilename": name, "size": len(content), "blobId": blob})
    return found


class Handler(BaseHTTPRequestHandler):
    """Answers one request after the other."""

    protocol_version = "HTTP/1.1"
    server: "Server"

    def do_GET(self) -> None:
        hub, path = self.server.hub, unquote(urlsplit(self.path).path)
        with hub.lock:
            hub.asked.append(Asked(self.server.host, path, self.headers["Range"], self.headers["Authorization"]))
        fault = hub.next_fault(path)
        if fault is not None and fault.act is not None:
            self.close_connection = True
            fault.act(self)
        elif fault is not None:
            self.answer(fault.status, b"", fault.headers)
        elif (found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/revision/(.+)", path)) is not None:
            self.list(*found.groups())
        elif (found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)) is not None:
            self.resolve(*found.groups())
        else:
            self.answer(404)

    def list(self, name: str, revision: str) -> None:
        hub = self.server.hub
        if name not in hub.models:
            self.answer(401)  # as of a private model
        elif revision not in hub.revisions:
            self.answer(404, b"", {"X-Error-Code": "RevisionNotFound"})
        else:
            told = {"sha": hub.revisions[revision], "siblings": listed(hub.models[name])}
            self.answer(200, json.dumps(told).encode())

    def resolve(self, name: str, commit: str, path: str) -> None:
        hub = self.server.hub
        content = hub.models.get(name, {}).get(path)
        if name in hub.gated and self.server.host == "hub":
            self.answer(401, b"", {"X-Error-Code": "GatedRepo"})
        elif content is None:
            self.answer(404, b"", {"X-Error-Code": "EntryNotFound"})
        elif isinstance(content, bytes):
            self.answer(200, content)
        elif self.server.host == "hub":
            self.answer(302, b"", {"Location": f"{self.server.other}{self.path}?signed=yes"})
        else:
            self.piece(content)

    def piece(self, content: Sparse) -> None:
        span = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers["Range"] or "")
        if span is None or not self.server.hub.ranges:
            self.send_response(200)
            self.send_header("Content-Length", str(content.size))
            self.end_headers()
            self.close_connection = True
            with suppress(OSError):
                for begin in range(0, content.size, 2**16):
                    self.body(content.part(begin, min(begin + 2**16, content.size)))
            return
        begin, end = int(span[1]), min(int(span[2]) + 1, content.size)
        self.answer(206, content.part(begin, end), {"Content-Range": f"bytes {begin}-{end - 1}/{content.size}"})

    def answer(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None, lost: int = 0) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) + lost))
        if self.close_connection:  # else a client may send its next request while the connection is closed
            self.send_header("Connection", "close")
        self.end_headers()
        self.body(body)

    def body(self, data: bytes) -> None:
        # Counted first: whoever has read the answer may look at the count at once.
        with self.server.hub.lock:
            self.server.hub.sent += len(data)
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


class Server(ThreadingHTTPServer):
    """One host of the hub."""

    def __init__(self, hub: Hub, host: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.hub, self.host, self.other = hub, host, ""
        self.address = f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, *_: Any) -> None:
        """A client that went away is what some tests are about."""


@contextmanager
def serving(hub: Hub) -> Iterator[None]:
    """Serve a hub, which then knows its address."""
    servers = [Server(hub, "hub"), Server(hub, "storage")]
    servers[0].other = servers[1].address
    threads = [threading.Thread(target=each.serve_forever, args=(0.005,)) for each in servers]
    for thread in threads:
        thread.start()
    try:
        hub.address = servers[0].address
        yield
    finally:
        hub.done.set()
        for server, thread in zip(servers, threads, strict=True):
            server.shutdown()
            thread.join()
            server.server_close()


# What a server does wrong


def breaks_off(handler: Handler) -> None:
    """Declare more than is sent."""
    handler.send_response(206 if handler.headers["Range"] else 200)
    handler.send_header("Content-Length", "100")
    handler.end_headers()
    handler.body(b"{")


def never_answers(handler: Handler) -> None:
    handler.server.hub.done.wait()


def never_ends(handler: Handler) -> None:
    """Send without an end, and without saying how much."""
    handler.send_response(206 if handler.headers["Range"] else 200)
    handler.send_header("Connection", "close")
    handler.end_headers()
    with suppress(OSError):
        while not handler.server.hub.done.is_set():
            handler.body(b" " * 2**16)


def drips(handler: Handler) -> None:
    """Send one byte after the other, a few milliseconds apart."""
    handler.send_response(200)
    handler.send_header("Connection", "close")
    handler.end_headers()
    with suppress(OSError):
        while not handler.server.hub.done.wait(0.002):
            handler.body(b" ")


def drips_headers(handler: Handler) -> None:
    """Send one byte of a header after the other; who waits half a second for them learns that nothing is here."""
    handler.wfile.write(b"HTTP/1.1 404 Not Found\r\nX-Slow: ")
    with suppress(OSError):
        for _ in range(250):
            if not handler.server.hub.done.wait(0.002):
                handler.wfile.write(b" ")
        handler.wfile.write(b"\r\nContent-Length: 0\r\n\r\n")


def sends(span: str, data: bytes | None = None, lost: int = 0) -> Callable[[Handler], None]:
    """Answer a request for a part of a file with another part, or with one of another file, and lose its end."""

    def act(handler: Handler) -> None:
        begin, end = map(int, re.findall(r"\d+", handler.headers["Range"]))
        body = bytes(end + 1 - begin) if data is None else data
        handler.answer(206, body, {"Content-Range": span.format(begin=begin, end=end)} if span else {}, lost)

    return act
