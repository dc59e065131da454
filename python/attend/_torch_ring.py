"""attend.torch's ring: sequences that the processes of a torch.distributed group hold together. The library says what is
sent where; the messages are torch.distributed's. attend.torch is what to use of it.
"""

import atexit
import contextlib
import json
import os
import re
import threading
import time
import weakref
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, Literal, Unpack, overload

import torch
import torch.distributed as dist
from torch.compiler import is_compiling

from . import _core
from ._calls import short
from ._torch_operators import LEARNED, Options, draw_seed, records, seed_tensor

Runs = list[list[tuple[int, int]]]  # [rank][run], (begin, end)
Axis = str | Runs
Sharding = Literal["contiguous", "zigzag"] | Runs | tuple[Axis, Axis]

# Beyond those that a program of torch.distributed uses, which has the same group.
_FIRST_TAG = 1 << 20
_SAYS, _SHARE = 1 << 15, (1 << 15) + 1  # the library's are below
_SAID = 4096  # bytes of what a rank says; each says as many
_OWN_MEMORY = 1 << 20  # bytes of a message
_KEY = "attend_ring_given_up"
_EACH = 0.25  # seconds between looks at what the ranks share


# --- Messages ----------------------------------------------------------------------------------------------------


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


def _group(function: str, group: dist.ProcessGroup | None) -> dist.ProcessGroup:
    if group is None:
        if not dist.is_initialized():
            raise ValueError(f"{function}: torch.distributed.init_process_group() was not called")
        group = dist.group.WORLD
    if not isinstance(group, dist.ProcessGroup):
        raise TypeError(f"{function}: group: expected a process group that this process is in, got {type(group).__name__}")
    return group


def _ranks_of(function: str, group: dist.ProcessGroup | None) -> Ranks:
    group = _group(function, group)
    if group not in _ranks:
        _ranks[group] = Ranks(group)
    return _ranks[group]


# --- Which positions a rank has ----------------------------------------------------------------------------------

_EXPECTED = "'contiguous', 'zigzag', or for each rank a list of (begin, end)"


def _read_axis(function: str, axis: Any) -> Axis:
    """Checked, as far as its types go."""
    if isinstance(axis, str):
        if axis not in ("contiguous", "zigzag"):
            raise ValueError(f"{function}: sharding: expected {_EXPECTED}, got {axis!r}")
        return axis
    try:
        if not isinstance(axis, list):
            raise TypeError
        return [[(_whole(begin), _whole(end)) for begin, end in rank] for rank in axis]
    except (TypeError, ValueError):
        raise TypeError(f"{function}: sharding: expected {_EXPECTED}, got {type(axis).__name__} {short(axis)}") from None


def _short(x: Any) -> str:
    text = repr(x)
    return text if len(text) <= 200 else f"{text[:150]}... (crc32 {zlib.crc32(text.encode()):08x})"


def _whole(number: Any) -> int:
    if not isinstance(number, int) or not -2**62 < number < 2**62:
        raise TypeError
    return number


def _length(runs: list[tuple[int, int]]) -> int:
    return sum(end - begin for begin, end in runs)


def _runs(function: str, name: str, axis: Axis, lengths: list[int]) -> Runs:
    """Of all ranks, whose shares have these lengths."""
    if axis == "contiguous":
        begins = [sum(lengths[:rank]) for rank in range(len(lengths))]
        return [[(begin, begin + length)] for begin, length in zip(begins, lengths)]
    runs = _core._ring_runs("zigzag", len(lengths), sum(lengths)) if isinstance(axis, str) else axis
    if len(runs) != len(lengths):
        raise ValueError(f"{function}: sharding: {name} are cut for {len(runs)} ranks, there are {len(lengths)}")
    for rank, (of_rank, length) in enumerate(zip(runs, lengths)):
        if _length(of_rank) != length:
            raise ValueError(f"{function}: rank {rank} has {length} {name}, expected {_length(of_rank)}, as the sharding "
                             f"of {sum(map(_length, runs))} says; ring_shard() cuts so")
    return runs


def _runs_to_cut(function: str, axis: Any, ranks: int, length: int) -> Runs:
    axis = _read_axis(function, axis)
    runs = _core._ring_runs(axis, ranks, length) if isinstance(axis, str) else axis
    if len(runs) != ranks:
        raise ValueError(f"{function}: sharding: positions are cut for {len(runs)} ranks, there are {ranks}")
    _check_cover(function, runs, length)
    return runs


def _check_cover(function: str, runs: Runs, length: int) -> None:
    end = 0
    for run in sorted(run for rank in runs for run in rank if run[0] != run[1]):
        if run[0] != end or run[1] < end:
            break
        end = run[1]
    if end != length or sum(map(_length, runs)) != length:
        raise ValueError(f"{function}: sharding: expected runs that have each of {length} positions once, got {_short(runs)}")


def _check_tensor(function: str, name: str, x: Any) -> None:
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"{function}: {name}: expected a PyTorch tensor, got {type(x).__name__}")
    if x.layout != torch.strided or x.is_nested or x.is_quantized or x.device.type != "cpu":
        raise TypeError(f"{function}: {name}: expected a dense tensor on the CPU, got {x.layout} on {x.device}")


def _check_dim(function: str, x: torch.Tensor, dim: Any) -> int:
    if not isinstance(dim, int) or isinstance(dim, bool):
        raise TypeError(f"{function}: dim: expected a whole number, got {type(dim).__name__}")
    if not -x.dim() <= dim < x.dim():
        raise ValueError(f"{function}: dim is {dim}, x has shape {list(x.shape)}")
    return dim % x.dim()


def ring_shard(
    x: torch.Tensor,
    dim: int,
    group: dist.ProcessGroup | None = None,
    *,
    sharding: Axis = "contiguous",
) -> torch.Tensor:
    """This rank's share of the axis dim of x, which all ranks of the group have as a whole.

    sharding says which positions that are. "contiguous": one run, as even as whole tiles of 192 positions allow.
    "zigzag": a part from the front and one from the back, so that with causal all ranks have as much to do. Or a list
    with, for each rank, a list of its runs, (begin, end) each. One run is a view of x. Gradients are recorded.

    A model that splits its sequences splits all that has their axis in one way: ids, targets, and positions,
    ring_shard(torch.arange(tokens), 0, sharding="zigzag").

    >>> import torch, attend.torch
    >>> import torch.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> attend.torch.ring_shard(torch.arange(5), 0, sharding=[[(0, 2), (2, 5)]])
    tensor([0, 1, 2, 3, 4])
    >>> dist.destroy_process_group()
    """
    group = _group("ring_shard", group)
    _check_tensor("ring_shard", "x", x)
    dim = _check_dim("ring_shard", x, dim)
    own = _runs_to_cut("ring_shard", sharding, group.size(), x.shape[dim])[group.rank()]
    parts = [x.narrow(dim, begin, end - begin) for begin, end in own if end > begin]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim) if parts else x.narrow(dim, 0, 0)


def ring_unshard(
    x: torch.Tensor,
    dim: int,
    group: dist.ProcessGroup | None = None,
    *,
    sharding: Axis = "contiguous",
) -> torch.Tensor:
    """The whole, of which each rank of the group gives its share x, along the axis dim: on every rank.

    The way back from ring_shard(), with the same sharding; "contiguous" takes shares of any lengths. It records no
    gradient, and refuses a tensor that requires one: x.detach(). Errors are ring_attention()'s.

    >>> import torch, attend.torch
    >>> import torch.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> attend.torch.ring_unshard(torch.arange(5), 0)
    tensor([0, 1, 2, 3, 4])
    >>> dist.destroy_process_group()
    """
    function = "ring_unshard"
    ranks = _ranks_of(function, group)

    def prepare() -> dict[str, Any]:
        _check_tensor(function, "x", x)
        if records((x,)):
            raise ValueError(f"{function}: x requires a gradient, which is not recorded: x.detach()")
        axis = _check_dim(function, x, dim)
        shape = [*x.shape[:axis], "T", *x.shape[axis + 1:]]
        return {"x": f"{x.dtype} {shape}", "sharding": _short(_read_axis(function, sharding)), "_length": x.shape[axis]}

    with ranks.lock:
        lengths = [each["_length"] for each in ranks.tell(function, prepare)]
        runs = _runs(function, "positions", _read_axis(function, sharding), lengths)
        _check_cover(function, runs, sum(lengths))
        dim = dim % x.dim()
        shares = [x.new_empty((*x.shape[:dim], length, *x.shape[dim + 1:])) for length in lengths]
        shares[ranks.rank] = x.resolve_conj().resolve_neg().contiguous()
        messages = [share.flatten().view(torch.uint8) for share in shares]
        try:
            ranks.exchange(_SHARE, messages[ranks.rank], messages)
        except ConnectionError as error:
            raise ConnectionError(f"{function}: {error}") from None
    whole = x.new_empty((*x.shape[:dim], sum(lengths), *x.shape[dim + 1:]))
    for share, of_rank in zip(shares, runs):
        at = 0
        for begin, end in of_rank:
            whole.narrow(dim, begin, end - begin).copy_(share.narrow(dim, at, end - begin))
            at += end - begin
    return whole


def ring_sum(x: torch.Tensor, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """x becomes the sum of all ranks' x, in place, and is returned.

    Added in float32 (float64 for float64) in the order of the ranks: the same bits on every rank, and in every run.
    Each rank receives all of them: for gradients of what is small, as sinks, alibi_slopes and distance_bias are;
    torch.distributed.all_reduce() is the better one for those of a model's weights. Errors are ring_attention()'s.

    >>> import torch, attend.torch
    >>> import torch.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> attend.torch.ring_sum(torch.ones(2))
    tensor([1., 1.])
    >>> dist.destroy_process_group()
    """
    ranks = _ranks_of("ring_sum", group)

    def prepare() -> dict[str, Any]:
        _check_tensor("ring_sum", "x", x)
        if records((x,)):
            raise ValueError("ring_sum: x requires a gradient, which is not recorded: x.detach()")
        if not x.is_floating_point():
            raise TypeError(f"ring_sum: x is {x.dtype}, expected a floating point dtype")
        return {"x": f"{x.dtype} {list(x.shape)}"}

    with ranks.lock:
        ranks.tell("ring_sum", prepare)
        _core._ring_sum(ranks, x)
    return x


# --- Attention ---------------------------------------------------------------------------------------------------


class _Options(Options, total=False):
    sharding: Sharding
    cu_seqlens_q: torch.Tensor | Sequence[int] | None
    cu_seqlens_k: torch.Tensor | Sequence[int] | None


@overload
def ring_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, group: dist.ProcessGroup | None = None, *,
                   return_lse: Literal[True], **options: Unpack[_Options]) -> tuple[torch.Tensor, torch.Tensor]: ...
@overload
def ring_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, group: dist.ProcessGroup | None = None, *,
                   return_lse: Literal[False] = False, **options: Unpack[_Options]) -> torch.Tensor: ...
def ring_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    group: dist.ProcessGroup | None = None,
    *,
    sharding: Sharding = "contiguous",
    causal: bool = False,
    window: tuple[int | None, int | None] | None = None,
    offset: int | Literal["top_left", "bottom_right"] | None = None,
    mask: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    distance_bias: torch.Tensor | None = None,
    alibi_slopes: torch.Tensor | None = None,
    sinks: torch.Tensor | None = None,
    softcap: float = 0.0,
    scale: float | None = None,
    key_lengths: torch.Tensor | Sequence[int] | None = None,
    cu_seqlens_q: torch.Tensor | Sequence[int] | None = None,
    cu_seqlens_k: torch.Tensor | Sequence[int] | None = None,
    dropout: float | tuple[float, int] = 0.0,
    return_lse: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """attention() over a sequence that the ranks of a torch.distributed group hold together, with gradients.

    Every rank calls it, with its share of the sequence: q [B,H,Tq_local,D], k [B,Hkv,Tk_local,D], v [B,Hkv,Tk_local,Dv],
    in float32, bfloat16 or float16. It gets its rows of the result, [B,H,Tq_local,Dv], and with return_lse also
    lse [B,H,Tq_local]. Keys and values pass from rank to rank; no rank ever holds all of them. Where shares begin at
    multiples of 192 positions the bits are those of attend.torch.attention() in one process, gradients too
    (docs/ring.md has the exceptions).

    group         of gloo, or of any backend that sends tensors on the CPU; None: the default one
    sharding      which positions a rank has. "contiguous": the ranks' shares, of any lengths, one after another.
                  "zigzag": two parts, as ring_shard(..., sharding="zigzag") cuts. A list: for each rank its runs,
                  (begin, end) each. A tuple of two: of the queries, and of the keys
    mask, bias    of this rank's queries and of all keys: broadcast to [B,H,Tq_local,Tk]
    cu_seqlens_q, cu_seqlens_k: sequences one after another along T, as attend.attention_varlen() has them

    All other options are attention()'s, the same on every rank, and say what they say of the whole sequence. dropout is
    p, with a seed from the default generator of rank 0, or (p, seed).

    Backward is a call of every rank, too. Each rank has the gradients of its q, k and v. Those of sinks, alibi_slopes,
    distance_bias and of a broadcast bias are what its own rows add: sum them over the ranks, with ring_sum() or
    torch.distributed.all_reduce(), as those of a model's weights. A second derivative raises NotImplementedError.

    An error of one rank is an error of all: ValueError, TypeError and MemoryError name the rank, or what the ranks
    disagree about, and come before anything is computed. ConnectionError says that a rank is gone, or gave up, which
    one and why: the others learn it within a second, through the store that the group was made with. Make
    another group then.

    >>> import torch, attend.torch
    >>> import torch.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> x = torch.ones(1, 2, 3, 8, requires_grad=True)
    >>> attend.torch.ring_attention(x, x, x, causal=True, sharding="zigzag", dropout=(0.1, 7)).sum().backward()
    >>> x.grad.shape
    torch.Size([1, 2, 3, 8])
    >>> dist.destroy_process_group()
    """
    given = {"mask": mask, "bias": bias, "distance_bias": distance_bias, "alibi_slopes": alibi_slopes, "sinks": sinks}
    options = {"causal": causal, "window": window, "offset": offset, "softcap": softcap, "scale": scale,
               "key_lengths": key_lengths, "cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_k}
    by = torch.compiler.disable(_attend) if is_compiling() else _attend  # which a compiler calls as it stands
    out, lse = by(q, k, v, group, sharding, given, options, dropout, return_lse)
    return (out, lse) if return_lse else out


_FORWARD, _BACKWARD = "ring_attention", "ring_attention_backward"


def _attend(q, k, v, group, sharding, given, options, dropout, return_lse):
    ranks = _ranks_of(_FORWARD, group)
    p, seed = dropout if isinstance(dropout, tuple) and len(dropout) == 2 else (dropout, None)
    given = {name: x for name, x in given.items() if x is not None}

    def make_call(seed):
        options["dropout"] = (p, seed) if p else None
        with torch.no_grad():
            return _core._RingCall(q, k, v, **options, **given)

    def prepare():
        for name, x in (("q", q), ("k", k), ("v", v), *given.items()):
            _check_tensor(_FORWARD, name, x)
            if name in ("q", "k") and x.dim() < 2:
                raise ValueError(f"{_FORWARD}: {name}: expected at least 2 axes, got shape {list(x.shape)}")
        if p is not None and not isinstance(p, (int, float)):
            raise TypeError(f"{_FORWARD}: dropout: expected a number, or (p, seed), got {type(dropout).__name__}")
        drawn = int(draw_seed() if seed is None else seed_tensor(seed)) % 2**64 if p else 0
        axes = _read_sharding(sharding)
        make_call(drawn)  # which checks
        return {
            "dropout": f"{p or 0.0}" if not p or seed is None else f"({p}, {drawn})", "_seed": drawn,
            "sharding": _short(axes), "_lengths": [q.shape[-2], k.shape[-2]],
            "records a gradient": records((q, k, v, *given.values())),
            "records those of": [name for name in LEARNED if name in given and given[name].requires_grad],
        }

    with ranks.lock:
        told = ranks.tell(_FORWARD, prepare)
        runs = [_runs(_FORWARD, name, axis, [each["_lengths"][n] for each in told])
                for n, (name, axis) in enumerate(zip(("queries", "keys"), _read_sharding(sharding)))]
        call = make_call(told[0]["_seed"])
        if not told[0]["records a gradient"]:
            return call.forward(ranks, *runs)[:2]
        return _RingAttention.apply(return_lse, _Kept(ranks, runs, options, tuple(given), call), q, k, v, *given.values())


def _read_sharding(sharding: Any) -> list[Axis]:
    axes = sharding if isinstance(sharding, tuple) else (sharding, sharding)
    if len(axes) != 2:
        raise TypeError(f"{_FORWARD}: sharding: expected two, of queries and of keys, got {len(axes)}")
    return [_read_axis(_FORWARD, axis) for axis in axes]


class _Kept:
    """What a backward needs besides tensors."""

    def __init__(self, ranks: Ranks, runs: list[Runs], options: dict[str, Any], names: tuple[str, ...], call: Any) -> None:
        self.ranks, self.runs, self.options, self.names = ranks, runs, options, names
        self.call = call  # the forward's


class _RingAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, with_lse, kept, q, k, v, *given):
        out, lse, lse_low = kept.call.forward(kept.ranks, *kept.runs)
        del kept.call
        ctx.save_for_backward(out, lse, lse_low, q, k, v, *given)
        ctx.kept, ctx.with_lse = kept, with_lse
        if not with_lse:
            ctx.mark_non_differentiable(lse)
        return out, lse

    @staticmethod
    def backward(ctx, dout, dlse):
        wanted = [name for name, need in zip(ctx.kept.names, ctx.needs_input_grad[5:]) if need]
        arguments = (ctx.kept, wanted, dout, dlse if ctx.with_lse else None, *ctx.saved_tensors)
        by = _RingBackward.apply if torch.is_grad_enabled() else _gradients  # enabled: create_graph=True
        dq, dk, dv, *learned = by(*arguments)
        of_wanted = dict(zip(wanted, learned))
        return None, None, dq, dk, dv, *map(of_wanted.get, ctx.kept.names)


def _gradients(kept, wanted, dout, dlse, out, lse, lse_low, q, k, v, *given):
    """Of q, k and v, and of the options that are wanted."""
    made = []

    def prepare():
        flags = {f"d{name}": True for name in wanted}
        with torch.no_grad():
            made.append(_core._RingCall(q, k, v, **kept.options, **dict(zip(kept.names, given)), **flags))
        return {"gradients wanted": wanted, "dlse": "given" if dlse is not None else "not given"}

    with kept.ranks.lock, torch.no_grad():
        kept.ranks.tell(_BACKWARD, prepare)
        dlse = None if dlse is None else dlse.resolve_neg()
        dq, dk, dv, learned = made[0].backward(kept.ranks, *kept.runs, dout.resolve_neg(), out, lse, lse_low, dlse)
    return dq, dk, dv, *(learned[name] for name in wanted)


class _RingBackward(torch.autograd.Function):
    """An error is better than a second derivative that is silently 0."""

    @staticmethod
    def forward(ctx, *arguments):
        return _gradients(*arguments)

    @staticmethod
    def backward(ctx, *gradients):
        raise NotImplementedError("attend.torch: ring_attention has no second derivative")
