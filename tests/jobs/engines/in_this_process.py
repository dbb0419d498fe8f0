"""An engine without workers: what surrounds an engine is tested without the 5 s in which a worker imports PyTorch."""

import pickle
from collections.abc import Iterable, Iterator

from clockhands.jobs.engines import Job
from clockhands.jobs.engines._jobs import Message, payload, work


class Pool:
    """Runs each job when its messages are asked for, one after the other."""

    def __init__(self, at_once: int | None, threads: int | None, address: str | None, preload: Iterable[str]) -> None:
        del threads, address, preload
        self.at_once = at_once or 2
        self._waiting: dict[int, bytes] = {}

    def start(self, number: int, job: Job) -> None:
        self._waiting[number] = payload(job)

    def messages(self) -> Iterator[tuple[int, Message]]:
        number = min(self._waiting)
        sent: list[bytes] = []
        work(self._waiting.pop(number), sent.append)
        for each in sent:
            yield number, pickle.loads(each)
        yield number, ("ended", "")

    def close(self) -> None:
        self._waiting.clear()
