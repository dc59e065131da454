"""attend.torch's ring: sequences that the processes of a torch.distributed group hold together. attend.torch is what to use
of it.
"""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Literal, Unpack, overload

import torch
import torch.distributed as dist
from torch.compiler import is_compiling

from . import _core
from ._torch_operators import LEARNED, Options, draw_seed, records, seed_tensor
from ._torch_ranks import SHARE, Ranks, group_of, ranks_of
from ._torch_sharding import Axis, Runs, Sharding, check_cover, read_axis, runs_of, runs_to_cut, shown


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
    """This rank's share of x along the axis dim, where every rank of the group has the whole x.

    sharding says which positions these are. "contiguous" is one run, as even as whole tiles of 192 positions allow.
    "zigzag" is a part from the front and one from the back, so that with causal all ranks have equal work. A list has, for
    each rank, a list of its runs, (begin, end) each. One run is a view of x. Gradients are recorded.

    A model that splits its sequences must split everything along that axis in the same way: ids, targets, and positions,
    ring_shard(torch.arange(tokens), 0, sharding="zigzag").

    >>> import torch, attend.torch
    >>> import torch.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> attend.torch.ring_shard(torch.arange(5), 0, sharding=[[(0, 2), (2, 5)]])
    tensor([0, 1, 2, 3, 4])
    >>> dist.destroy_process_group()
    """
    group = group_of("ring_shard", group)
    _check_tensor("ring_shard", "x", x)
    dim = _check_dim("ring_shard", x, dim)
    own = runs_to_cut("ring_shard", sharding, group.size(), x.shape[dim])[group.rank()]
    parts = [x.narrow(dim, begin, end - begin) for begin, end in own if end > begin]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim) if parts else x.narrow(dim, 0, 0)


def ring_unshard(
    x: torch.Tensor,
    dim: int,
    group: dist.ProcessGroup | None = None,
    *,
    sharding: Axis = "contiguous",
) -> torch.Tensor:
    """The whole along the axis dim, on every rank, put together from each rank's share x.

    It is the way back from ring_shard(), with the same sharding; "contiguous" takes shares of any lengths. It records no
    gradient, and refuses a tensor that requires one: pass x.detach(). Errors are those of ring_attention().

    >>> import torch, attend.torch
    >>> import torch.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> attend.torch.ring_unshard(torch.arange(5), 0)
    tensor([0, 1, 2, 3, 4])
    >>> dist.destroy_process_group()
    """
    function = "ring_unshard"
    ranks = ranks_of(function, group)

    def prepare() -> dict[str, Any]:
        _check_tensor(function, "x", x)
        if records((x,)):
            raise ValueError(f"{function}: x requires a gradient, which is not recorded: x.detach()")
        axis = _check_dim(function, x, dim)
        shape = [*x.shape[:axis], "T", *x.shape[axis + 1:]]
        return {"x": f"{x.dtype} {shape}", "sharding": shown(read_axis(function, sharding)), "_length": x.shape[axis]}

    with ranks.lock:
        lengths = [each["_length"] for each in ranks.tell(function, prepare)]
        runs = runs_of(function, "positions", read_axis(function, sharding), lengths)
        check_cover(function, runs, sum(lengths))
        dim = dim % x.dim()
        shares = [x.new_empty((*x.shape[:dim], length, *x.shape[dim + 1:])) for length in lengths]
        shares[ranks.rank] = x.resolve_conj().resolve_neg().contiguous()
        messages = [share.flatten().view(torch.uint8) for share in shares]
        try:
            ranks.exchange(SHARE, messages[ranks.rank], messages)
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
    """Sum x over all ranks, in place, and return it.

    The sum is added in float32 (float64 for float64) in the order of the ranks, with the same bits on every rank and in
    every run. Each rank receives every other rank's x, so this is for small gradients, such as those of sinks, alibi_slopes
    and distance_bias; torch.distributed.all_reduce() suits a model's weights better. Errors are those of ring_attention().

    >>> import torch, attend.torch
    >>> import torch.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> attend.torch.ring_sum(torch.ones(2))
    tensor([1., 1.])
    >>> dist.destroy_process_group()
    """
    ranks = ranks_of("ring_sum", group)

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


_KEYWORDS = frozenset(Options.__annotations__)


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
    cu_seqlens_q: torch.Tensor | Sequence[int] | None = None,
    cu_seqlens_k: torch.Tensor | Sequence[int] | None = None,
    return_lse: bool = False,
    **options: Any,  # attention()'s
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """attention() over a sequence that the ranks of a torch.distributed group hold together, with gradients.

    Every rank calls it with its share of the sequence: q [B,H,Tq_local,D], k [B,Hkv,Tk_local,D], v [B,Hkv,Tk_local,Dv], in
    float32, bfloat16 or float16. Each rank gets its rows of the result, [B,H,Tq_local,Dv], and with return_lse also
    lse [B,H,Tq_local]. Keys and values pass from rank to rank; no rank ever holds all of them. If shares begin at
    multiples of 192 positions, the bits, also of gradients, are those of attend.torch.attention() in one process
    (docs/ring.md has the exceptions).

    group         a group of gloo, or of another backend that sends tensors on the CPU; None: the default group
    sharding      which positions a rank has. "contiguous": the ranks' shares, of any lengths, one after another.
                  "zigzag": two parts, as ring_shard(..., sharding="zigzag") cuts. A list: for each rank its runs,
                  (begin, end) each. A tuple of two: one for the queries and one for the keys
    mask, bias    for this rank's queries and all keys: broadcast to [B,H,Tq_local,Tk]
    cu_seqlens_q, cu_seqlens_k: sequences one after another along T, as attend.attention_varlen() has them

    All other options are those of attention(), the same on every rank, and apply to the whole sequence. dropout is p, with a
    seed from rank 0's default generator, or (p, seed).

    Every rank must call backward too. Each rank gets the gradients of its q, k and v. For sinks, alibi_slopes, distance_bias
    and a broadcast bias it gets what its own rows add: sum these over the ranks, with ring_sum() or
    torch.distributed.all_reduce(), like those of a model's weights. A second derivative raises NotImplementedError.

    An error on one rank is an error on all. ValueError, TypeError and MemoryError name the rank, or what the ranks disagree
    about, and come before anything is computed. ConnectionError says which rank is gone or gave up, and why; the others
    learn it within a second, through the store that the group was made with. Make another group then.

    >>> import torch, attend.torch
    >>> import torch.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> x = torch.ones(1, 2, 3, 8, requires_grad=True)
    >>> attend.torch.ring_attention(x, x, x, causal=True, sharding="zigzag", dropout=(0.1, 7)).sum().backward()
    >>> x.grad.shape
    torch.Size([1, 2, 3, 8])
    >>> dist.destroy_process_group()
    """
    for name in options:
        if name not in _KEYWORDS:
            raise TypeError(f"ring_attention() got an unexpected keyword argument {name!r}")
    given = {name: options.pop(name, None) for name in ("mask", *LEARNED)}
    dropout = options.pop("dropout", 0.0)
    options |= {"cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_k}
    by = torch.compiler.disable(_attend) if is_compiling() else _attend  # which a compiler calls as it stands
    out, lse = by(q, k, v, group, sharding, given, options, dropout, return_lse)
    return (out, lse) if return_lse else out


def show_keywords_of(attention: Callable[..., Any]) -> None:
    """help() and inspect say of ring_attention() what attention() has for keywords, where they are listed."""
    own = inspect.signature(ring_attention)
    *first, last = (own.parameters[name] for name in own.parameters if name != "options")
    of_attention = inspect.signature(attention).parameters
    keywords = [of_attention[name] for name in of_attention if name in _KEYWORDS]
    ring_attention.__signature__ = own.replace(parameters=[*first, *keywords, last])  # type: ignore[attr-defined]


_FORWARD, _BACKWARD = "ring_attention", "ring_attention_backward"


def _attend(q, k, v, group, sharding, given, options, dropout, return_lse):
    ranks = ranks_of(_FORWARD, group)
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
            "sharding": shown(axes), "_lengths": [q.shape[-2], k.shape[-2]],
            "records a gradient": records((q, k, v, *given.values())),
            "records those of": [name for name in LEARNED if name in given and given[name].requires_grad],
        }

    with ranks.lock:
        told = ranks.tell(_FORWARD, prepare)
        runs = [runs_of(_FORWARD, name, axis, [each["_lengths"][n] for each in told])
                for n, (name, axis) in enumerate(zip(("queries", "keys"), _read_sharding(sharding)))]
        call = make_call(told[0]["_seed"])
        if not told[0]["records a gradient"]:
            return call.forward(ranks, *runs)[:2]
        return _RingAttention.apply(return_lse, _Kept(ranks, runs, options, tuple(given), call), q, k, v, *given.values())


def _read_sharding(sharding: Any) -> list[Axis]:
    axes = sharding if isinstance(sharding, tuple) else (sharding, sharding)
    if len(axes) != 2:
        raise TypeError(f"{_FORWARD}: sharding: expected two, of queries and of keys, got {len(axes)}")
    return [read_axis(_FORWARD, axis) for axis in axes]


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
