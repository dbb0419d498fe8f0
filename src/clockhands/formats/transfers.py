"""Requests to a hub, with limits on bytes and seconds, and one-sentence errors.

All requests use the session of ``huggingface_hub``, which knows the user's proxies and certificates and refuses when
the hub is switched off. The token is sent to the hub alone: on a redirect to another host the session removes it.

Its calls above the session (``HfApi.model_info``, ``HfFileSystem``, ``hf_hub_download``, from 1.0 to 2.4) are not used,
because none of them has a limit: from a server without ranges, ``HfFileSystem`` took a file of 1 GB and 1.9 GB of
memory to read 32 KiB. They wait as long as a server sends anything, and do not check which part of a file arrives. A
limit can be put below them only in the session itself (``set_client_factory``), which is that of the whole process.

Source: RFC 9110, sections 10.2.3 (Retry-After) and 14 (ranges); for the codes of errors ``huggingface_hub``,
``utils/_http.py``, ``hf_raise_for_status``.
"""

import io
import os
import queue
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import closing, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote

from clockhands.errors import Unreadable
from clockhands.formats.hub_cache import HubName, hub_folder
from clockhands.phrases import shown

MOST_BYTES = 17_000_000
"""Bytes that are taken for one model; with what is on its way when a connection is closed, it stays below 20 MB."""

_PAUSES = (0.5, 2.0)  # seconds before the second and the third try
_LONGEST_PAUSE = 30.0  # seconds that a server may ask for
_LONGEST = 60.0  # the longest time in seconds for one request, headers and all, however slowly its answer arrives
_LONGEST_MODEL = 300.0  # and that for all requests of one model: many slow answers are also a wait without an end
_AT_ONCE = 8  # requests
THREADS = "clockhands fetching"
_BUSY = (429, 500, 502, 503, 504)
_NAMES_OF_BLOBS = ("X-Linked-Etag", "ETag")

Done = TypeVar("Done")

WATCH: ContextVar[Callable[[str], None] | None] = ContextVar("WATCH", default=None)
"""Is called with what is being fetched, in words, each time that something arrived; None for nobody."""


class NotFetched(Unreadable):
    """Something other than the config was not fetched: the model can be read without it."""


class WholeFilesOnly(NotFetched):
    """The hub does not send parts of files."""


class _OtherBytes(ConnectionError):
    """A part of a file arrived that was not asked for."""


@dataclass(frozen=True)
class Transferred:
    """What a server sent.

    Attributes:
        data: The bytes.
        total: The size of the whole file, if the answer to a range request gives it.
        blob: The hash of the file by which the hub names it, if the answer gives one.
    """

    data: bytes
    total: int | None = None
    blob: str | None = None


def why_not() -> tuple[str, str] | None:
    """Why nothing can be fetched here, as the end of a sentence, and what to do; None if fetching is possible."""
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        if os.environ.get(name, "").upper() in ("1", "ON", "YES", "TRUE"):
            return f"and {name} is set", f"unset {name}"
    try:
        from huggingface_hub import constants
    except ImportError:
        return (
            "and the package that fetches from the hub is not installed",
            'install it with `pip install "clockhands[hub]"`',
        )
    return ("and huggingface_hub is switched off", "unset HF_HUB_OFFLINE") if constants.HF_HUB_OFFLINE else None


class Transfers:
    """The requests for one model, which share a budget of bytes.

    Attributes:
        asked: The model.
        endpoint: The address of the hub.
        received: Bytes of files and lists that arrived.
    """

    def __init__(self, asked: HubName) -> None:
        # The package is optional.
        import huggingface_hub
        from huggingface_hub import constants, utils

        self.asked = asked
        self.endpoint: str = (os.environ.get("HF_ENDPOINT") or constants.ENDPOINT).rstrip("/")
        self.received: int = 0
        self._session = utils.get_session
        self._timeout = float(constants.HF_HUB_DOWNLOAD_TIMEOUT)
        # The token, unless the user has switched that off; this User-Agent says nothing about the machine.
        agent = f"clockhands; hf_hub/{huggingface_hub.__version__}"
        self._headers = utils.build_hf_headers(headers={"accept-encoding": "identity", "user-agent": agent})
        self._reserved = 0
        self._until = time.monotonic() + _LONGEST_MODEL
        self._lock = threading.Lock()

    @property
    def left(self) -> int:
        """Bytes that may still be requested."""
        with self._lock:
            return max(0, MOST_BYTES - self.received - self._reserved)

    def listing(self, most: int) -> bytes:
        """The hub's description of the model at its revision, as JSON."""
        revision = quote(self.asked.revision or "main", safe="")
        return self._get(f"{self.endpoint}/api/models/{self.asked.name}/revision/{revision}?blobs=true", most).data

    def file(self, commit: str, path: str, most: int) -> Transferred:
        """A whole file.

        Raises:
            NotFetched: It has more than ``most`` bytes, or more than are left of the budget.
            Unreadable: The hub refuses it, or cannot be reached.
        """
        return self._get(self._address(commit, path), most)

    def range(self, commit: str, path: str, start: int, count: int) -> Transferred:
        """The requested bytes of a file, or fewer at its end; an answer with other bytes is refused.

        Raises:
            NotFetched: More than are left of the budget.
            WholeFilesOnly: The server does not send parts of files.
            Unreadable: The hub refuses it, or cannot be reached.
        """
        return self._get(self._address(commit, path), count, start)

    def _address(self, commit: str, path: str) -> str:
        return f"{self.endpoint}/{self.asked.name}/resolve/{commit}/{quote(path)}"

    def _get(self, url: str, most: int, start: int | None = None) -> Transferred:
        """Bytes from an address, at most ``most``; with ``start``, those from there on."""
        self._reserve(most)
        told: Exception | None = None
        try:
            for pause in (*_PAUSES, None):
                left = max(0.0, self._until - time.monotonic())
                try:
                    status, headers, answer = self._in_time(min(_LONGEST, left), url, most, start)
                except Unreadable:
                    raise
                # The session's exceptions are those of httpx or of httpx2, by the version of huggingface_hub.
                except Exception as error:  # noqa: BLE001
                    # Other bytes are a fault of the server; a broken connection may be one of the network.
                    told = told if isinstance(told, _OtherBytes) else error
                    if time.monotonic() + (pause or 0.0) >= self._until:
                        raise self._unreachable(TimeoutError(), f"in {_LONGEST_MODEL:g} seconds") from None
                    if pause is None:
                        raise self._unreachable(told) from None
                    time.sleep(pause)
                    continue
                if answer is not None:
                    return answer
                wait = _seconds_to_wait(headers)
                if status not in _BUSY or pause is None or (wait or 0) > _LONGEST_PAUSE:
                    raise self._refusal(status, headers, wait)
                time.sleep(pause if wait is None else wait)
        finally:
            self._reserve(-most)
        raise AssertionError("the last try returns or raises")

    def _reserve(self, count: int) -> None:
        """Reserve bytes, so that concurrent requests together stay within the limit."""
        with self._lock:
            if count > 0 and self.received + self._reserved + count > MOST_BYTES:
                raise NotFetched(
                    f"{self.asked} needs more than the {MOST_BYTES // 10**6} MB that are fetched of a model.",
                    f"Download the model: `{self.asked.download}`.",
                )
            self._reserved += count

    def _in_time(self, seconds: float, url: str, most: int, start: int | None) -> tuple[int, Any, Transferred | None]:
        """What `_once` returns, within one limit for headers and body.

        The session's own limit begins again with each byte, so a server that drips its headers would hold a reader for
        days. Here only the thread is held that waits for it, and that ends with the process.
        """
        until = time.monotonic() + seconds
        done = at_once([url], lambda url: self._once(url, most, start, until), seconds)
        with closing(done):
            answer = next(done)[1]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _once(self, url: str, most: int, start: int | None, until: float) -> tuple[int, Any, Transferred | None]:
        """Status, headers and, if the server agrees, the bytes of one answer."""
        headers = dict(self._headers)
        if start is not None:
            headers["Range"] = f"bytes={start}-{start + most - 1}"
        with self._session().stream(
            "GET", url, headers=headers, timeout=self._timeout, follow_redirects=True
        ) as response:
            if response.status_code >= 400:
                return response.status_code, response.headers, None
            if start is not None and response.status_code != 206:
                raise WholeFilesOnly(
                    f"{self.endpoint} sends whole files only, so no header of the weights was fetched.",
                    f"Download the model: `{self.asked.download}`.",
                )
            if response.headers.get("Content-Encoding", "identity") != "identity":
                raise ConnectionError("the answer is compressed")
            # Judged before the body, which may break off.
            end, total = (None, None) if start is None else _part(response.headers, start, most)
            data = bytearray()
            for piece in response.iter_raw():
                self._count(len(piece))
                data += piece
                if len(data) > most:
                    raise NotFetched(
                        f"{url} has more than the {most:,} bytes that are fetched of it.",
                        f"Download the model: `{self.asked.download}`.",
                    )
                if time.monotonic() > until:
                    raise TimeoutError("the answer takes too long")
            if start is not None and start + len(data) != end:
                raise _OtherBytes(f"{len(data)} bytes from {start} on were to end at {end}")
            if start is not None and total is not None and len(data) < min(most, total - start):
                raise ConnectionError("the answer ends too early")
            return response.status_code, response.headers, Transferred(bytes(data), total, _blob(response.headers))

    def _count(self, count: int) -> None:
        with self._lock:
            self.received += count
            spent = self.received > MOST_BYTES
        if spent:  # by failed tries, or a server that sends more than requested
            raise NotFetched(
                f"{self.endpoint} sent more than {MOST_BYTES // 10**6} MB for {self.asked}, and no more is taken.",
                f"Try again later, or download the model: `{self.asked.download}`.",
            )

    # What is said when it fails

    def _unreachable(self, error: Exception, of: str = f"{len(_PAUSES) + 1} tries") -> Unreadable:
        what = "could not be reached, or broke off"
        if "Timeout" in type(error).__name__:
            what = "did not answer in time"
        elif isinstance(error, _OtherBytes):
            what = "sent another part of a file than the requested one"
        return Unreadable(
            f"{self.asked} was not fetched: {self.endpoint} {what} ({of}).",
            f"Check the connection and try again; the model is not in the local cache ({hub_folder()}).",
        )

    def _refusal(self, status: int, headers: Any, wait: float | None) -> Unreadable:
        asked, code = self.asked, headers.get("X-Error-Code", "")
        page = f"{self.endpoint}/{asked.name}"
        if status == 429:
            for_ = f" for the next {wait:,.0f} seconds" if wait else ""
            return Unreadable(
                f"{asked} was not fetched: {self.endpoint} refuses more requests{for_} (status 429).",
                "Try again later; with `hf auth login` more requests are allowed.",
            )
        if code == "GatedRepo" or status == 403:
            return Unreadable(
                f"{asked} is gated, and {self.endpoint} does not let you read it (status {status}).",
                f"Accept the conditions on {page} and log in with `hf auth login`.",
            )
        if status == 401 and "credentials" in headers.get("X-Error-Message", ""):
            return Unreadable(
                f"{asked} was not fetched: {self.endpoint} does not accept your token (status 401).",
                "Log in again with `hf auth login`, or correct HF_TOKEN.",
            )
        if code == "RevisionNotFound":
            revision = asked.revision or "main"
            return Unreadable(
                f"{asked} was not found: {self.endpoint} has {asked.name} without a revision {revision!r}.",
                f"Name a branch, a tag or a commit: {page}/tree/main lists them.",
            )
        if status in (401, 404) and code != "EntryNotFound":
            return Unreadable(
                f"{asked} is neither a path here, nor in the local cache, nor on {self.endpoint} (status {status}).",
                "Check the spelling; for a private or gated model log in with `hf auth login`.",
            )
        return Unreadable(
            f"{asked} was not fetched: {self.endpoint} answers with status {status}.",
            f"Try again later, or download the model: `{asked.download}`.",
        )


def at_once(
    names: list[str], work: Callable[[str], Done], seconds: float | None = None
) -> Generator[tuple[str, Done | Exception], None, None]:
    """Each name with the result of ``work`` for it, in the order of completion.

    The threads are daemons, so that an interrupt does not wait for answers.

    Args:
        names: What is worked on.
        work: Called in a thread.
        seconds: For how long a result is waited for; None for as long as it takes.

    Raises:
        TimeoutError: No result came in this time.
    """
    waiting = deque(names)
    results: queue.SimpleQueue[tuple[str, Done | Exception]] = queue.SimpleQueue()

    def run() -> None:
        with suppress(IndexError):  # none is left
            while True:
                name = waiting.popleft()
                try:
                    results.put((name, work(name)))
                except Exception as error:  # noqa: BLE001 - raised again where the results are taken
                    results.put((name, error))

    for _ in names[:_AT_ONCE]:
        threading.Thread(target=run, daemon=True, name=THREADS).start()
    try:
        for _ in names:
            try:
                yield results.get(timeout=seconds)
            except queue.Empty:
                raise TimeoutError("the answer takes too long") from None
    finally:
        waiting.clear()  # after an interrupt, no further job is started


class Growing(io.RawIOBase):
    """A remote file that is read from the front: bytes are fetched when they are read for the first time.

    Attributes:
        data: The bytes fetched so far.
    """

    def __init__(self, start: Transferred, more: Callable[[int, int], bytes], most: Callable[[], int]) -> None:
        self.data: bytearray = bytearray(start.data)
        self._size, self._more, self._most = start.total or len(start.data), more, most
        self._at = 0

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a place."""
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer from the place on, as far as the file goes."""
        end = min(self._at + len(buffer), self._size)
        while len(self.data) < end:
            count = max(end - len(self.data), min(len(self.data), self._most()))  # twice as much each time
            data = self._more(len(self.data), min(count, self._size - len(self.data)))
            if not data:
                break
            self.data += data
        piece = bytes(self.data[self._at : end])
        buffer[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)


def _seconds_to_wait(headers: Any) -> float | None:
    """The seconds that a server asks to wait, by either header for it; None if it does not say, or gives a date."""
    found = re.fullmatch(r"\s*(\d{1,9})\s*", headers.get("Retry-After", "")) or re.search(
        r";\s*t=(\d{1,9})", headers.get("RateLimit", "")
    )
    return None if found is None else float(found[1])


def _part(headers: Any, start: int, most: int) -> tuple[int, int | None]:
    """Where the bytes from ``start`` on end that are sent, and the size of the whole file, None if it is not given.

    Raises:
        _OtherBytes: They do not begin there.
    """
    said = headers.get("Content-Range", "")
    found = re.fullmatch(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)", said)
    if found is None or int(found[1]) != start:
        raise _OtherBytes(f"{most} bytes from {start} on were to be sent as {shown(said)}")
    return int(found[2]) + 1, None if found[3] == "*" else int(found[3])


def _blob(headers: Any) -> str | None:
    """The hash of a file in the headers that huggingface_hub reads it from."""
    found = (re.fullmatch(r'(?:W/)?"?([0-9a-f]{64}|[0-9a-f]{40})"?', headers.get(name, "")) for name in _NAMES_OF_BLOBS)
    return next((each[1] for each in found if each is not None), None)
