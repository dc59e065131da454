"""The ranks of a torch.distributed group, as attend's ring asks for them: what is sent where the library says; the messages
are torch.distributed's.
"""

import atexit
import contextlib
import json
import os
import re
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import torch
import torch.distributed as dist

# Beyond those that a program of torch.distributed uses, which has the same group.
_FIRST_TAG = 1 << 20
_SAYS, SHARE = 1 << 15, (1 << 15) + 1  # the library's are below
_SAID = 4096  # bytes of what a rank says; each says as many
_OWN_MEMORY = 1 << 20  # bytes of a message
_KEY = "attend_ring_given_up"
_EACH = 0.25  # seconds between looks at what the ranks share


class _Waiter(threading.Thread):
    """A request of gloo's ends in its wait() alone, and one that timed out closes the connection: so each message that is
    under way has a thread that waits."""

    def __init__(self) -> None:
        super().__init__(name="attend ring", daemon=True)
        self.messages: SimpleQueue[_Message] = SimpleQueue()
        self.start()

    def run(self) -> None:
        while True:
            message = self.messages.get()
            _waiting.add(message)
            try:
                message.request.wait()
            except Exception as error:  # whatever the backend raises where the other end is gone
                message.error = str(error) or type(error).__name__
            _waiting.discard(message)
            message.done = True
            del message
            _idle.append(self)


_idle: deque[_Waiter] = deque()
_waiting: set["_Message"] = set()
_ranks: "weakref.WeakKeyDictionary[dist.ProcessGroup, Ranks]" = weakref.WeakKeyDictionary()


def _forget() -> None:
    """A forked process has neither the threads nor the locks of those that did not come along."""
    _idle.clear()
    _waiting.clear()
    _ranks.clear()


os.register_at_fork(after_in_child=_forget)


@atexit.register
def _let_waiters_end() -> None:
    """After a failure only. A thread that PyTorch sends back into Python while Python ends aborts the process; those of
    ranks that are gone end by themselves."""
    end = time.monotonic() + 1
    while _waiting and time.monotonic() < end:
        time.sleep(0.01)


class _Message:
    """One that is under way."""

    def __init__(self, peer: int, begin: Callable[..., Any], tensor: torch.Tensor, **where: Any) -> None:
        self.peer, self.error, self.done = peer, "", False
        self.tensor = tensor
        self.to: torch.Tensor | None = None  # where it is copied when it is there
        try:
            self.request = begin(tensor, **where)
        except RuntimeError as error:
            self.error, self.done = str(error), True
            return
        try:
            waiter = _idle.pop()
        except IndexError:
            waiter = _Waiter()
        waiter.messages.put(self)


class Ranks:
    """A process group, as the library asks for it (RingTransport of attend/ring.h). Where a rank can't go on, it says so
    in the store that the group was made with, where the others look while they wait."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group = weakref.ref(group)
        self.rank, self.size = group.rank(), group.size()
        self.lock = threading.RLock()
        self.lost = ""  # why nothing can be sent any more
        try:
            self._store = group.get_group_store()
        except RuntimeError:  # a backend that has none
            self._store = None
        self._messages: dict[int, _Message] = {}
        self._next = 0
        self._look_at = 0.0

    def send(self, to: int, tag: int, memory: Any) -> int:
        return self._begin(to, dist.isend, tag, _tensor(memory))

    def receive(self, peer: int, tag: int, memory: Any) -> int:
        """After a failure nothing is written to memory that the library has given back: short messages come to this
        module's own."""
        to = _tensor(memory)
        if to.numel() > _OWN_MEMORY:
            return self._begin(peer, dist.irecv, tag, to)
        number = self._begin(peer, dist.irecv, tag, torch.empty_like(to))
        self._messages[number].to = to
        return number

    def _begin(self, peer: int, begin: Callable[..., Any], tag: int, tensor: torch.Tensor) -> int:
        end = "group_dst" if begin is dist.isend else "group_src"
        where = {"group": self._group(), "tag": _FIRST_TAG + tag, end: peer}
        self._next += 1
        self._messages[self._next] = _Message(peer, begin, tensor, **where)
        return self._next

    def test(self, number: int) -> bool:
        message = self._messages[number]
        if not message.done:
            if time.monotonic() >= self._look_at:
                self._look_at = time.monotonic() + _EACH
                reason = self._given_up()
                if reason:
                    raise ConnectionError(reason)
            return False
        if message.error:
            # A rank that gave up and ended has said why.
            what = re.sub(r"^\[\S+\] ", "", message.error).split(". ")[0]
            raise ConnectionError(self._given_up() or f"rank {message.peer} is lost: {what}")
        del self._messages[number]
        if message.to is not None:
            message.to.copy_(message.tensor)
        return True

    def _given_up(self) -> str:
        try:
            if self._store is None or not self._store.check([_KEY]):
                return ""
            rank, reason = self._store.get(_KEY).decode("utf-8", "replace").split("\n", 1)
        except RuntimeError as error:
            return f"the group's store is gone, and rank 0 with it where rank 0 has it: {error}"
        return f"rank {rank} gave up: {reason}" if int(rank) != self.rank else reason

    def abandon(self, reason: bytes | str) -> None:
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else reason
        self.lost = self.lost or text
        self._messages.clear()
        if self._store is None:
            return
        with contextlib.suppress(RuntimeError):  # the others find that the store is gone
            self._store.compare_set(_KEY, "", f"{self.rank}\n{text}")  # the first one stays

    # --- What this module sends itself ---

    def wait(self, numbers: list[int]) -> None:
        """Until these messages are through. Whatever ends it is the others' error too."""
        pause = 20e-6
        try:
            for number in numbers:
                while not self.test(number):
                    time.sleep(pause)
                    pause = min(2 * pause, 1e-3)
        except BaseException as error:
            kind = "" if isinstance(error, ConnectionError) else type(error).__name__
            self.abandon(": ".join(filter(None, (kind, str(error)))))
            raise

    def exchange(self, tag: int, own: torch.Tensor, others: list[torch.Tensor]) -> None:
        """own to all; what each other one has into others[rank]."""
        peers = [peer for peer in range(self.size) if peer != self.rank]
        numbers = [self._begin(peer, dist.irecv, tag, others[peer]) for peer in peers]
        self.wait(numbers + [self._begin(peer, dist.isend, tag, own) for peer in peers])

    def tell(self, function: str, prepare: Callable[[], dict[str, Any]]) -> list[dict[str, Any]]:
        """What prepare() gives on each rank: names and values, all the same but those of `_`. Where it raises, all raise."""
        if self.lost:
            raise ConnectionError(f"{function}: the group has lost a rank before, make another with "
                                  f"torch.distributed.new_group(): {self.lost}")
        failure = None
        try:
            own = prepare()
        except Exception as error:
            failure, own = error, {"error": type(error).__name__, "text": str(error)[:500]}
        own["function"] = function
        text = json.dumps(own).encode()
        said = [torch.empty(_SAID, dtype=torch.uint8) for _ in range(self.size)]
        said[self.rank] = torch.frombuffer(bytearray(text.ljust(_SAID)), dtype=torch.uint8)
        try:
            self.exchange(_SAYS, said[self.rank], said)
        except ConnectionError as error:
            raise (failure or ConnectionError(f"{function}: {error}")) from None
        if failure is not None:
            raise failure
        told = [json.loads(bytes(each.tolist())) for each in said]
        for rank, other in enumerate(told):
            if "error" in other:
                kind = {"TypeError": TypeError, "MemoryError": MemoryError}.get(other["error"], ValueError)
                raise kind(f"{function}: rank {rank}: {other['text'].removeprefix(function + ': ')}")
        first = told[0]
        for rank, other in enumerate(told):
            for name in ("function", *first, *other):  # in the same order on every rank
                if not name.startswith("_") and other.get(name) != first.get(name):
                    raise ValueError(f"{function}: ranks disagree: {name} is {first.get(name)} on rank 0, "
                                     f"{other.get(name)} on rank {rank}")
        return told


def _tensor(memory: Any) -> torch.Tensor:
    return torch.frombuffer(memory, dtype=torch.uint8) if len(memory) > 0 else torch.empty(0, dtype=torch.uint8)


def group_of(function: str, group: dist.ProcessGroup | None) -> dist.ProcessGroup:
    if group is None:
        if not dist.is_initialized():
            raise ValueError(f"{function}: torch.distributed.init_process_group() was not called")
        group = dist.group.WORLD
    if not isinstance(group, dist.ProcessGroup):
        raise TypeError(f"{function}: group: expected a process group that this process is in, got {type(group).__name__}")
    return group


def ranks_of(function: str, group: dist.ProcessGroup | None) -> Ranks:
    group = group_of(function, group)
    if group not in _ranks:
        _ranks[group] = Ranks(group)
    return _ranks[group]
