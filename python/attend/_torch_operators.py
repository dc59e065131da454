"""torch.ops.attend.*: attend's functions as operators of PyTorch, with their gradients, for its dispatcher, compilers and
transforms; and calls that go to them only where something looks. attend.torch is what to use of it.
"""

import operator
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Literal, TypedDict

import torch
from torch import is_autocast_enabled, is_grad_enabled
from torch._C import _get_tracing_state, _is_torch_function_mode_enabled, _len_torch_dispatch_stack
from torch._C._functorch import peek_interpreter_stack, unwrap_if_dead
from torch._functorch.utils import enable_single_level_autograd_function, unwrap_dead_wrappers
from torch.autograd import forward_ad
from torch.compiler import is_compiling

from . import _core

PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})
DTYPES = frozenset({torch.float32, torch.bfloat16, torch.float16})
# All tensors are positional: PyTorch registers vmap for no others. dropout_seed is one, so that a compiled program may
# draw it anew in each run.
TENSORS = (*(name for name, *_ in _core._tensor_keywords), "dropout_seed")
LEARNED = tuple(name for name, has_gradient, _ in _core._tensor_keywords if has_gradient)
WANT = tuple(f"want_d{name}" for name in LEARNED)


class Options(TypedDict, total=False):
    """The types of the keywords that attend.torch's functions share: what they return depends on others."""

    causal: bool
    window: tuple[int | None, int | None] | None
    offset: int | Literal["top_left", "bottom_right"] | None
    mask: torch.Tensor | None
    bias: torch.Tensor | None
    distance_bias: torch.Tensor | None
    alibi_slopes: torch.Tensor | None
    sinks: torch.Tensor | None
    softcap: float
    scale: float | None
    key_lengths: torch.Tensor | Sequence[int] | None
    dropout: float | tuple[float, int]


def dispatches(q: torch.Tensor) -> bool:
    """Whether something looks at what PyTorch's dispatcher is asked to do: a compiler, a transform or a mode. They see
    the operators; otherwise a direct call saves what the dispatcher costs."""
    return (
        is_compiling()
        or type(q) not in PLAIN
        or _len_torch_dispatch_stack() > 0
        or peek_interpreter_stack() is not None
        or _is_torch_function_mode_enabled()
        or _get_tracing_state() is not None
    )


def records(tensors):
    """Whether a backward may come. Nothing else says that a tangent would be lost."""
    if forward_ad._current_level >= 0 and any(
            isinstance(x, torch.Tensor) and forward_ad.unpack_dual(x).tangent is not None for x in tensors):
        raise NotImplementedError("attend.torch: attention has no forward-mode derivative")
    if is_grad_enabled():
        for x in tensors:  # any() of a generator takes twice as long
            if isinstance(x, torch.Tensor) and x.requires_grad:
                return True
    return False


# --- attention and its gradients ---------------------------------------------------------------------------------


def attention(q, k, v, given, options, with_lse):
    """attend.attention() of the operator's options and, by name, of its optional tensors: (out, lse, lse_low), or out
    alone; recorded where PyTorch records."""
    if dispatches(q):
        results = attention_operator(q, k, v, *map(given.get, TENSORS), **options)
        return results if with_lse else results[0]
    if records((q, k, v, *given.values())):
        return record(q, k, v, given, options, with_lse)
    return _core.attention(q, k, v, return_lse_low=with_lse, **_keywords(given, **options))


def record(q, k, v, given, options, with_lse):
    """attention() where nothing looks and PyTorch records."""
    given = {name: x for name, x in given.items() if x is not None}
    tensors = map(unwrap_if_dead, (q, k, v))  # as Function.apply() does
    return _apply(with_lse, options, (*given,), *tensors, *(unwrap_dead_wrappers(given.values()) if given else ()))


def _keywords(given, *, window_left=-1, window_right=-1, offset=None, bottom_right=False, dropout_p=0.0, **options):
    """attend.attention()'s keywords, of the operator's options and, by name, of its optional tensors: those that say
    something, since each takes time."""
    options |= {name: x for name, x in given.items() if x is not None}
    seed = options.pop("dropout_seed", None)
    if window_left != -1 or window_right != -1:
        options["window"] = (window_left, window_right)
    if bottom_right or offset is not None:
        options["offset"] = "bottom_right" if bottom_right else offset
    if dropout_p != 0:
        if seed is None:
            raise ValueError("attention: dropout_p is given without dropout_seed")
        options["dropout"] = (dropout_p, int(seed) % 2**64)
    return options


def _attention_cpu(q, k, v, *tensors, **options):
    return _core.attention(q, k, v, return_lse_low=True, **_keywords(dict(zip(TENSORS, tensors)), **options))


def _attention_fake(q, k, v, *tensors, layout="bhtd", **options):
    rows = q.shape[:-1]
    if layout == "bthd" and len(rows) >= 2:
        rows = (*rows[:-2], rows[-1], rows[-2])
    lse_dtype = torch.float64 if q.dtype == torch.float64 else torch.float32
    return q.new_empty((*q.shape[:-1], v.shape[-1])), *(q.new_empty(rows, dtype=lse_dtype) for _ in range(2))


def _gradients(dout, dlse, out, lse, lse_low, q, k, v, keywords):
    if dlse is not None:
        keywords = keywords | {"dlse": dlse.resolve_neg()}
    return _core.attention_backward(dout.resolve_neg(), q, k, v, out, lse, lse_low=lse_low, **keywords)


def _backward_cpu(dout, dlse, out, lse, lse_low, q, k, v, *tensors, **options):
    wanted = {f"d{name}": options.pop(want, False) for name, want in zip(LEARNED, WANT)}
    gradients = _gradients(dout, dlse, out, lse, lse_low, q, k, v, wanted | _keywords(dict(zip(TENSORS, tensors)), **options))
    learned = (getattr(gradients, name) for name in wanted)
    return gradients.dq, gradients.dk, gradients.dv, *(q.new_empty(0) if x is None else x for x in learned)


def _backward_fake(dout, dlse, out, lse, lse_low, q, k, v, *tensors, **options):
    given = dict(zip(TENSORS, tensors))
    learned = (given[name] if options.get(want) else q.new_empty(0) for name, want in zip(LEARNED, WANT))
    return tuple(x.new_empty(x.shape) for x in (q, k, v, *learned))


def _below(operator, *tensors, **options):
    """The operator without this level's autograd. Nothing is recorded inside of Function.forward, where an outer level of
    torch.func may have to."""
    with torch.set_grad_enabled(peek_interpreter_stack() is not None), torch._C._AutoDispatchBelowAutograd():
        return operator(*tensors, **options)


class _DirectAttention(torch.autograd.Function):
    """attention() while PyTorch records and nothing else looks. The operator's arguments and results are all there in
    each call and each takes time; here lse is a result only where it is wanted, and kept for the backward otherwise."""

    @staticmethod
    def forward(ctx, with_lse, options, names, q, k, v, *given):
        results = _core.attention(q, k, v, return_lse_low=True, **_keywords(dict(zip(names, given)), **options))
        ctx.save_for_backward(*results, q, k, v, *given)
        ctx.options, ctx.names = options, names
        if not with_lse:
            return results[0]
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(results[2])  # a rounding error
        return results

    @staticmethod
    def backward(ctx, dout, dlse=None, _=None):
        out, lse, lse_low, q, k, v, *given = ctx.saved_tensors
        if dout is None:
            if dlse is None:
                return (None,) * len(ctx.needs_input_grad)
            dout = torch.zeros_like(out)
        given = dict(zip(ctx.names, given))
        wanted = [name for name, need in zip(ctx.names, ctx.needs_input_grad[6:]) if need] if given else ()
        if dispatches(dout) or is_grad_enabled():  # enabled: create_graph=True
            tensors = (dout, dlse, out, lse, lse_low, q, k, v, *map(given.get, TENSORS))
            gradients = _gradients_by_operator(tensors, ctx.options, wanted)
        else:
            keywords = _keywords(given, **ctx.options) | {f"d{name}": True for name in wanted}
            gradients = _gradients(dout, dlse, out, lse, lse_low, q, k, v, keywords)
        learned = (getattr(gradients, f"d{name}", None) for name in ctx.names) if given else ()
        return None, None, None, gradients.dq, gradients.dk, gradients.dv, *learned


class _PlainAttention(torch.autograd.Function):
    """The same of q, k and v alone, for out alone: most steps of training. Between a step's other kernels its code is
    cold, and each line counts."""

    @staticmethod
    def forward(ctx, options, q, k, v):
        out, lse, lse_low = _core.attention(q, k, v, return_lse_low=True, **options)
        ctx.save_for_backward(out, lse, lse_low, q, k, v)
        ctx.options = options
        return out

    @staticmethod
    def backward(ctx, dout):
        out, lse, lse_low, q, k, v = ctx.saved_tensors
        if dispatches(dout) or is_grad_enabled():  # enabled: create_graph=True
            tensors = (dout, None, out, lse, lse_low, q, k, v, *[None] * len(TENSORS))
            gradients = _gradients_by_operator(tensors, ctx.options, ())
        else:
            gradients = _core.attention_backward(dout.resolve_neg(), q, k, v, out, lse, lse_low=lse_low, **ctx.options)
        return None, gradients.dq, gradients.dk, gradients.dv


_apply_plain = super(torch.autograd.Function, _PlainAttention).apply
_apply = super(torch.autograd.Function, _DirectAttention).apply  # apply() without its look for transforms, 1.5 us


class _Attention(torch.autograd.Function):
    """The operator attention while PyTorch records."""

    @staticmethod
    def forward(ctx, options, *tensors):
        results = _below(attention_operator, *tensors, **options)
        ctx.save_for_backward(*results, *tensors)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(results[2])  # a rounding error
        ctx.options = options
        return results

    @staticmethod
    def backward(ctx, dout, dlse, _):
        needed = ctx.needs_input_grad[1:]  # of q, k and v, then of TENSORS
        if dout is None and dlse is None:
            return (None, *[None] * len(needed))
        out, *others = ctx.saved_tensors
        wanted = [name for name, need in zip(TENSORS, needed[3:]) if need]
        tensors = (torch.zeros_like(out) if dout is None else dout, dlse, out, *others)
        gradients = _gradients_by_operator(tensors, ctx.options, wanted)
        learned = (getattr(gradients, f"d{name}", None) for name in TENSORS[:len(needed) - 3])
        return None, gradients.dq, gradients.dk, gradients.dv, *learned


def _gradients_by_operator(tensors, options, wanted):
    """As _core.attention_backward() gives them."""
    options = options | {f"want_d{name}": True for name in wanted}
    dq, dk, dv, *learned = _backward_operator(*tensors, **options)
    of_wanted = {f"d{name}": x for name, x in zip(LEARNED, learned) if name in wanted}
    return SimpleNamespace(dq=dq, dk=dk, dv=dv, **of_wanted)


class _Backward(torch.autograd.Function):
    """The operator attention_backward while PyTorch records: an error is better than a second derivative that is
    silently 0."""

    @staticmethod
    def forward(ctx, options, *tensors):
        return _below(_backward_operator, *tensors, **options)

    @staticmethod
    def backward(ctx, *gradients):
        raise NotImplementedError("attend.torch: attention has no second derivative")


# --- scaled_dot_product_attention --------------------------------------------------------------------------------


def sdpa_by(function, query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa):
    """scaled_dot_product_attention() by attention() or record(), which keep what a backward needs, and drop."""
    q, k, v, mask, batches = _batch_and_heads(query, key, value, attn_mask, enable_gqa)
    mask, bias = (mask, None) if mask is None or mask.dtype == torch.bool else (None, mask)
    given = {"mask": mask, "bias": bias, "dropout_seed": draw_seed() if dropout_p != 0 else None}
    options = {"causal": True, "offset": 0} if is_causal else {}
    if scale is not None:
        options["scale"] = scale
    if dropout_p != 0:
        options["dropout_p"] = dropout_p
    out = function(q, k, v, given, options, False)
    return out if batches is None else out.unflatten(0, batches)


def sdpa_plain(query, key, value, dropout_p, is_causal, scale, enable_gqa):
    """scaled_dot_product_attention() of three plain tensors, without a mask or dropout, where nothing looks: what the
    longer way does, in one function. None for any other call, and where attend refuses."""
    try:
        if (
            type(query) not in PLAIN
            or type(key) not in PLAIN
            or type(value) not in PLAIN
            or dropout_p != 0
            or dispatches(query)
            or query.dtype not in DTYPES
            or not query.is_cpu
            or forward_ad._current_level >= 0
            or is_autocast_enabled("cpu")
        ):
            return None
        if not is_grad_enabled() or not (query.requires_grad or key.requires_grad or value.requires_grad):
            return _core.scaled_dot_product_attention(
                query, key, value, None, 0.0, is_causal, scale=scale, enable_gqa=enable_gqa
            )
        shape = query.shape
        if len(shape) > 4 or not (shape == key.shape == value.shape or shape[:-2] == key.shape[:-2] == value.shape[:-2]):
            return None
        options = {"causal": True, "offset": 0} if is_causal else {}
        if scale is not None:
            options["scale"] = scale
        return _apply_plain(options, unwrap_if_dead(query), unwrap_if_dead(key), unwrap_if_dead(value))
    except (RuntimeError, TypeError, ValueError):  # said by the longer way
        return None


def seed_tensor(seed: int) -> torch.Tensor:
    """A seed of 64 bits in PyTorch's int64."""
    try:
        number = operator.index(seed)
    except TypeError:
        number = -1
    if not 0 <= number < 2**64:
        raise TypeError("attention: dropout: expected (p, seed), a number and a whole number of 0 or more, "
                        f"got {seed!r}")
    return torch.full((), number - 2**64 if number >= 2**63 else number, dtype=torch.int64)


def draw_seed() -> torch.Tensor:
    """Of PyTorch's default generator, as its own dropout."""
    return torch.randint(2**63 - 1, (), device="cpu")


def _batch_and_heads(query, key, value, attn_mask, enable_gqa):
    """The four with the axes that attention() takes, those before the last two alike and at most one of batches; and
    all of those that the result has, where they are more."""
    end = -3 if enable_gqa else -2
    lead = query.shape[:end]
    if not lead == key.shape[:end] == value.shape[:end]:
        lead = torch.broadcast_shapes(lead, key.shape[:end], value.shape[:end])
        query, key, value = (x.expand(*lead, *x.shape[end:]) for x in (query, key, value))
    if attn_mask is not None and attn_mask.dim() > query.dim():
        raise ValueError(f"attn_mask has {attn_mask.dim()} axes, expected at most {query.dim()}")
    if query.dim() <= 4:
        return query, key, value, attn_mask, None
    batches = query.shape[:-3]
    if attn_mask is not None and attn_mask.dim() > 3:
        attn_mask = attn_mask.expand(*batches, *attn_mask.shape[-3:]).flatten(0, -4)
    return *(x.flatten(0, -4) for x in (query, key, value)), attn_mask, batches


def _sdpa_cpu(query, key, value, attn_mask=None, is_causal=False, *, scale=None, enable_gqa=False):
    return _core.scaled_dot_product_attention(
        query, key, value, attn_mask, 0.0, is_causal, scale=scale, enable_gqa=enable_gqa
    )


def _sdpa_fake(query, key, value, attn_mask=None, is_causal=False, *, scale=None, enable_gqa=False):
    leads = [x.shape[: -3 if enable_gqa else -2] for x in (query, key, value)]
    heads = query.shape[-3:-2] if enable_gqa else ()
    return query.new_empty((*torch.broadcast_shapes(*leads), *heads, query.shape[-2], value.shape[-1]))


def _sdpa_autograd(query, key, value, attn_mask=None, is_causal=False, *, scale=None, enable_gqa=False):
    if records((query, key, value, attn_mask)):
        return sdpa_by(attention, query, key, value, attn_mask, 0.0, is_causal, scale, enable_gqa)
    with torch._C._AutoDispatchBelowAutograd():
        return sdpa_operator(query, key, value, attn_mask, is_causal, scale=scale, enable_gqa=enable_gqa)


def _sdpa_vmap(info, in_dims, query, key, value, attn_mask=None, *options, **keywords):
    """One call: the mapped axis becomes the first of those that broadcast."""
    dims = [*in_dims, None][:4]
    if dims[0] is None:  # the result has the axes of query, key and value: a mask alone would not bring one
        query, dims[0] = query.expand(info.batch_size, *query.shape), 0
    tensors = [query, key, value, attn_mask]
    ranks = [x.dim() - (dim is not None) for x, dim in zip(tensors[:3], dims)]
    rank, least = max(ranks), 3 if keywords.get("enable_gqa") else 2
    if min(ranks) < least:  # the mapped axis would pass for one of them
        raise RuntimeError(f"scaled_dot_product_attention: expected at least {least} axes, got {min(ranks)}")
    for n, (x, dim) in enumerate(zip(tensors, dims)):
        if dim is not None:
            x = x.movedim(dim, 0)
            tensors[n] = x.reshape(x.shape[0], *[1] * (rank + 1 - x.dim()), *x.shape[1:])
    return sdpa_operator(*tensors, *options, **keywords), 0


# --- The operators -----------------------------------------------------------------------------------------------


def _by_function(name, function):
    """The kernel while PyTorch may record."""

    def kernel(*args, **keywords):
        if records(args):
            # As PyTorch's own operators do: under torch.func.grad the dispatcher takes care of the other levels, which
            # Function.apply would do once more.
            with enable_single_level_autograd_function():
                return super(torch.autograd.Function, function).apply(keywords, *args)
        with torch._C._AutoDispatchBelowAutograd():
            return getattr(torch.ops.attend, name).default(*args, **keywords)

    return kernel


def _one_by_one(name):
    """One call for each index of vmap: slopes, sinks and lengths that differ do not fit into one."""

    def rule(info, in_dims, *tensors, **options):
        def at(index):
            return [x if dim is None else x.select(dim, index) for x, dim in zip(tensors, in_dims)]

        run = getattr(torch.ops.attend, name).default
        if info.batch_size == 0:  # the shapes that one would have
            one = [x if dim is None else x.new_zeros(x.shape[:dim] + x.shape[dim + 1:])
                   for x, dim in zip(tensors, in_dims)]
            stacked = tuple(result.new_empty(0, *result.shape) for result in run(*one, **options))
        else:
            each = zip(*(run(*at(index), **options) for index in range(info.batch_size)))
            stacked = tuple(torch.stack(results) for results in each)
        return stacked, (0,) * len(stacked)

    return rule


_library = torch.library.Library("attend", "FRAGMENT")


def _define(name, signature, cpu, fake, autograd, vmap=None):
    _library.define(name + signature, tags=(torch.Tag.pt2_compliant_tag,))
    _library.impl(name, cpu, "CPU")
    _library.impl(name, autograd if vmap else _by_function(name, autograd), "Autograd")
    torch.library.register_fake(f"attend::{name}", fake, lib=_library)
    torch.library.register_vmap(f"attend::{name}", vmap or _one_by_one(name), lib=_library)
    return getattr(torch.ops.attend, name).default


_ARGUMENTS = "Tensor q, Tensor k, Tensor v, " + ", ".join(f"Tensor? {name}=None" for name in TENSORS)
_OPTIONS = (
    "bool causal=False, SymInt window_left=-1, SymInt window_right=-1, SymInt? offset=None, bool bottom_right=False, "
    "float? scale=None, float dropout_p=0., str layout='bhtd'"
    + "".join(f", float {name}=0." for name in _core._number_keywords)
)
_WANTED = ", ".join(f"bool {want}=False" for want in WANT)
# lse and lse_low are always there, as lse is in PyTorch's own attention operators: the backward reads them.
attention_operator = _define(
    "attention", f"({_ARGUMENTS}, *, {_OPTIONS}) -> (Tensor out, Tensor lse, Tensor lse_low)",
    _attention_cpu, _attention_fake, _Attention
)
# Gradients of options that are not wanted have no elements.
_backward_operator = _define(
    "attention_backward",
    f"(Tensor dout, Tensor? dlse, Tensor out, Tensor lse, Tensor lse_low, {_ARGUMENTS}, *, {_WANTED}, {_OPTIONS}) -> ("
    + ", ".join(f"Tensor d{name}" for name in ("q", "k", "v", *LEARNED)) + ")",
    _backward_cpu, _backward_fake, _Backward
)
sdpa_operator = _define(
    "scaled_dot_product_attention",
    "(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, bool is_causal=False, *, float? scale=None, "
    "bool enable_gqa=False) -> Tensor",
    _sdpa_cpu, _sdpa_fake, _sdpa_autograd, _sdpa_vmap
)
