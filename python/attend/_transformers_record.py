"""record(): what every head of a Hugging Face model attends to while it computes."""

import collections
import contextlib
import functools
import inspect
import os
import re
import warnings

import torch

from ._core import _recorder, _tensor_keywords, key_sizes
from ._recording import Recording, listed
from ._transformers_outputs import output_weight
from .torch import attention

# By the module that computes attention: the recorder of its model.
recorders: dict = {}


@contextlib.contextmanager
def recording_of(model, attends, options, layers, heads):
    """Records the one call of the model in the block. attends: whether a class of modules computes attention with attend."""
    recorder = ModelRecorder(model, attends, options, layers, heads)
    try:
        with recorder.hooks():
            yield recorder.recording
    finally:
        recorder.finish()


def bytes_of(budget):
    """ "2 GiB", or a number of bytes."""
    units = {"": 1, "B": 1, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40,
             "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
    found = re.fullmatch(r"\s*([0-9.]+)\s*([A-Za-z]*)\s*", budget) if isinstance(budget, str) else None
    most = 2**62
    if found and found[2].upper() in units:
        with contextlib.suppress(ValueError):
            return int(min(float(found[1]) * units[found[2].upper()], most))
    if isinstance(budget, int) and not isinstance(budget, bool) and budget >= 0:
        return min(budget, most)
    raise ValueError(f'record: budget: expected bytes, as a number or such as "2 GiB", got {budget!r}')


# ---- Names -------------------------------------------------------------------------------------------------------------

_CROSS = re.compile(r"cross|encoder_attn|encdec|encoder_decoder|multihead_attn", re.IGNORECASE)
_PLAIN = re.compile(r"layers?|blocks?|h|model|transformer|base_model|.*layer_groups", re.IGNORECASE)


def _name(path, is_causal, long=False):
    """ "decoder.3.cross", from "model.decoder.layers.3.encoder_attn": what it is part of, its numbers, what it attends to."""
    parts = path.split(".")
    numbered = [n for n, part in enumerate(parts) if part.isdigit()]
    if not numbered:
        return path
    before = parts[:numbered[0]]
    stack = "decoder" if "decoder" in before else "encoder" if "encoder" in before or not is_causal else "decoder"
    if long:  # two encoders in one model
        stack = ".".join(part for part in before if not _PLAIN.fullmatch(part)) or stack
    # T5 numbers what is in a block, too.
    numbers = [parts[n] for n in numbered if not (parts[n - 1] == "layer" and n >= 2 and parts[n - 2].isdigit())]
    return ".".join([stack, *numbers, _kind(".".join(parts[numbered[0]:]))])


def _kind(path):
    return "cross" if _CROSS.search(path) else "self"


def _is_one_stack(names):
    """Whether "encoder.3.self" or "decoder.3.self" can be "3.self"."""
    stacks = {name.split(".")[0] for name in names}
    return len(stacks) == 1 and stacks <= {"encoder", "decoder"} and len(set(names)) == len(names) and not any(
        name.endswith("cross") for name in names)


def named_layers(model, attends):
    """{module: (name, kind, path)} of the modules whose class attends, in the order of the model."""
    found = {module: path for path, module in model.named_modules() if attends(type(module))}
    causal = {module: bool(getattr(module, "is_causal", False)) for module in found}
    names = {module: _name(path, causal[module]) for module, path in found.items()}
    if _is_one_stack(names.values()):
        names = {module: name.partition(".")[2] for module, name in names.items()}
    for names_again in (lambda module: _name(found[module], causal[module], long=True), found.get):
        seen = collections.Counter(names.values())
        names = {module: name if seen[name] == 1 else names_again(module) for module, name in names.items()}
    return {module: (names[module], _kind(path), path) for module, path in found.items()}


# ---- A call of a model -------------------------------------------------------------------------------------------------


class ModelRecorder:
    """What the layers of a model say while the model is called once: forward(), or all steps of generate()."""

    def __init__(self, model, attends, options, layers, heads):
        self.model, self.options, self.heads = model, options, heads
        self.recording = Recording()
        self.names = named_layers(model, attends)
        if not self.names:
            raise ValueError(f"record: {type(model).__name__} has no layer that computes attention with attend")
        self.wanted = self._chosen(layers)
        self.raw = None  # while the model is called
        self.state = "not called"
        self.generates = False

    def _chosen(self, layers):
        names = [name for name, _, _ in self.names.values()]
        chosen = set()
        for layer in names if layers is None else [layers] if isinstance(layers, (str, int)) else layers:
            if layer not in names and not (isinstance(layer, int) and 0 <= layer < len(names)):
                raise ValueError(f"record: layers: {layer!r}, expected a number below {len(names)}, or one of {listed(names)}")
            chosen.add(layer if layer in names else names[layer])
        return chosen

    @contextlib.contextmanager
    def hooks(self):
        """In it the model's calls are seen, and those of its layers come to attend()."""
        taken = next((module for module in self.names if module in recorders), None)
        if taken is not None:
            raise RuntimeError("record: the model is recorded already, by a block around this one or by another thread")
        generate = vars(self.model).get("generate")
        handles = [self.model.register_forward_pre_hook(self._before, with_kwargs=True),
                   self.model.register_forward_hook(self._after, always_call=True)]
        recorders.update(dict.fromkeys(self.names, self))
        if hasattr(self.model, "generate"):
            self.model.generate = functools.wraps(self.model.generate)(
                functools.partial(self._generate, self.model.generate))
        try:
            yield
        finally:
            for module in self.names:
                del recorders[module]
            for handle in handles:
                handle.remove()
            if generate is not None:
                self.model.generate = generate
            else:
                vars(self.model).pop("generate", None)

    # The model's own calls

    def _begin(self, generates):
        if self.state != "not called":
            raise RuntimeError("record: a recording holds one call of the model, forward() or generate(): "
                               "record() again for another")
        self.state, self.generates = "called", generates
        self.raw = _recorder(self.options["top"], *self.options["map"], self.options["keep_qk"], self.options["key_sizes"],
                             self.options["budget"], generates)
        self.unsized = []  # layers whose output projection was not found
        self.ids = {"input_ids": None, "decoder_input_ids": None}  # [B,T] of all steps so far
        self.rows = collections.Counter()  # of each layer, so far
        self.calls = collections.Counter()  # of each module, in this step

    def _before(self, model, arguments, keywords):
        if torch.compiler.is_compiling():
            raise ValueError("record: a compiled model can't be recorded")
        if not self.generates:
            self._begin(False)
        self.calls.clear()
        given = inspect.signature(model.forward).bind_partial(*arguments, **keywords).arguments
        given = {**given, **given.get("kwargs", {})}
        for name in self.ids:
            self._add_ids(name, given.get(name))

    def _add_ids(self, name, ids):
        if isinstance(ids, torch.Tensor) and ids.dim() == 2:
            before = self.ids[name]
            self.ids[name] = ids.detach() if before is None else torch.cat((before, ids.detach()), 1)

    def _after(self, *_):
        if not self.generates:
            self.finish()

    def _generate(self, generate, *arguments, **keywords):
        self._refuse(keywords)
        self._begin(True)
        inputs = keywords.get("inputs", keywords.get("input_ids", arguments[0] if arguments else None))
        if self.model.config.is_encoder_decoder:
            self._add_ids("input_ids", inputs)
        try:
            return generate(*arguments, **keywords)
        finally:
            self.generates = False
            self.finish()

    def _refuse(self, keywords):
        """What calls the model for rows that are thrown away, or in another order."""
        config = keywords.get("generation_config") or getattr(self.model, "generation_config", None)

        def value(name):
            return keywords[name] if name in keywords else getattr(config, name, None)

        for name, least in (("num_beams", 2), ("prompt_lookup_num_tokens", 1), ("guidance_scale", 1.0001)):
            if (value(name) or 0) >= least:
                raise ValueError(f"record: generate({name}={value(name)!r}) calls the model for rows that are thrown away "
                                 "or change places, which a recording can't tell: expected plain decoding or sampling")
        for name in ("assistant_model", "custom_generate", "assistant_early_exit"):
            if value(name) is not None:
                raise ValueError(f"record: generate({name}=...) can't be recorded: expected plain decoding or sampling")

    def finish(self):
        """What was recorded becomes the recording."""
        if self.raw is None:
            return
        raw, self.raw = self.raw, None
        self.state = "done"
        if self.unsized:
            warnings.warn(f"record: key_sizes: no output projection was found in {listed(self.unsized)}: recorded by weight only",
                          stacklevel=2)
        made = raw.finish()
        name = self.model.config.name_or_path  # on the hub, or a folder, whose place on this machine is nobody's business
        made.model = (os.path.basename(os.path.normpath(name)) if os.path.isdir(name) else name) or type(self.model).__name__
        made.set_ids(*self.ids.values())
        self.recording._raw = made

    # The layers' calls

    def attend(self, module, query, key, value, dropout, options):
        """What attention() gives; query, key, value [B,T,H,D]."""
        name, kind, path = self.names[module]
        self.calls[module] += 1
        if self.calls[module] > 1:  # one module for several layers
            name = f"{name}.{self.calls[module] - 1}"
        if self.names[module][0] not in self.wanted or self.raw is None:
            return attention(query, key, value, dropout=dropout, **options)
        if kind == "self" and options.get("offset") is None and query.shape[1] != key.shape[1] and not self.rows[name]:
            kind = "cross"  # nothing says where its queries stand among its keys
        q, k, seen, numbers = self._part(query.detach(), key.detach(), options)
        self.raw.check(name, kind, numbers, q, k, **seen)
        out, lse, lse_low = attention(query, key, value, dropout=dropout, return_lse=True, return_lse_low=True, **options)
        if numbers:
            lse, lse_low = lse[:, numbers], lse_low[:, numbers]
        self.rows[name] += query.shape[1]
        tokens = self._tokens(name, path, self.rows[name]) if kind == "self" else None
        sizes = self._sizes(name, path, query, value) if self.options["key_sizes"] else None
        if numbers and sizes is not None:
            sizes = sizes[:, numbers]
        self.raw.add(name, kind, numbers, tokens, sizes, q, k, lse.detach(), lse_low.detach(), **seen)
        return out

    def _sizes(self, name, path, query, value):
        """abs(W_O v) [B,H,keys], of the keys that are new where the others were seen; None where W_O is not known."""
        weight = output_weight(self.model, path, query.shape[2] * value.shape[3])
        if weight is None:
            self.unsized += [] if name in self.unsized else [name]
            return None
        new, keys = query.shape[1], value.shape[1]
        if self.rows[name] > new and keys == self.rows[name]:
            value = value[:, keys - new:]
        return key_sizes(value.detach().transpose(1, 2), weight)

    def _tokens(self, name, path, count):
        """The ids of a layer's keys, where they are those of the model's text."""
        if re.search("vision|visual|image|audio|speech|pixel", path, re.IGNORECASE):
            return None
        decodes = self.model.config.is_encoder_decoder and name.startswith("decoder")
        ids = self.ids["decoder_input_ids" if decodes else "input_ids"]
        return ids if ids is not None and ids.shape[1] == count else None

    def _part(self, query, key, options):
        """q and k of the heads that are recorded, and the options for them; no numbers: all heads."""
        options = {name: value.detach() if isinstance(value, torch.Tensor) else value for name, value in options.items()
                   if name != "layout"}
        if self.heads is None:
            return query, key, options, []
        count = query.shape[2]
        numbers = {self.heads} if isinstance(self.heads, int) else set(self.heads)
        if not numbers or not all(isinstance(head, int) and 0 <= head < count for head in numbers):
            raise ValueError(f"record: heads: {self.heads!r}, expected numbers from 0 to {count - 1}")
        numbers = sorted(numbers)
        group = count // key.shape[2]
        for name in ("mask", "bias"):
            if options.get(name) is not None and options[name].dim() > 2 and options[name].shape[-3] == count:
                options[name] = options[name][..., numbers, :, :]
        for name, _, of_heads in _tensor_keywords:
            if of_heads and options.get(name) is not None:
                options[name] = options[name][numbers]
        return query[:, :, numbers], key[:, :, [head // group for head in numbers]], options, numbers
