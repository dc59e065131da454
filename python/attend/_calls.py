"""Calls of _core's functions: what inspect.signature() says of each, and what is said of a call that does not fit it."""

import ast
import functools
import operator
import sys

from . import _core

# What other libraries call arguments, and what they are called here, the first one that the function has.
NAMES = {
    "add_special_tokens": "special", "alibi": "alibi_slopes", "attention_bias": "bias", "attn_bias": "bias", "attn_mask": "mask",
    "cache": "caches", "cache_seqlens": "key_lengths", "conversation": "messages",
    "eos_token_id": "end", "input_ids": "ids sentences", "inputs": "ids sentences",
    "is_causal": "causal", "key_padding_mask": "key_lengths mask", "logits_soft_cap": "softcap", "max_length": "max_new_tokens",
    "max_tokens": "max_new_tokens", "model_name": "path", "model_name_or_path": "path", "model_path": "path", "n_heads": "heads",
    "n_predict": "max_new_tokens", "normalize_embeddings": "normalize", "num_heads": "heads", "outfile": "out", "output": "out",
    "past_key_values": "caches cache", "pretrained_model_name_or_path": "path", "prompt": "ids text", "prompt_name": "prompt",
    "prompts": "ids", "query": "q", "key": "k", "value": "v", "return_softmax_lse": "return_lse", "s_aux": "sinks",
    "seqlens_k": "key_lengths", "show_progress_bar": "progress", "skip_special_tokens": "skip_special", "sm_scale": "scale",
    "softmax_scale": "scale", "softmax_lse": "lse", "stop_token_ids": "end", "streamer": "on_text", "target": "token",
    "text_pair": "pair", "texts": "sentences ids", "token_type_ids": "types", "top_k": "top k", "torch_dtype": "dtype", "vmax": "high",
    "vmin": "low", "stop": "stop_strings", "window_size": "window", "xticklabels": "columns", "yticklabels": "rows",
}
# And what there is none of, with what takes its place.
REASONS = {
    "attention_mask": "sequences of different lengths stand one after another, without padding, and starts says where each begins",
    "batch_size": "what is given is computed in batches of a size that fits the machine",
    "clean_up_tokenization_spaces": "the tokenizer's own file says it",
    "convert_to_numpy": "results are NumPy arrays",
    "convert_to_tensor": "results are NumPy arrays, which torch.from_numpy() takes",
    "device": "attend computes on the CPU",
    "device_map": "attend computes on the CPU",
    "do_sample": "temperature above 0 draws, and 0 takes the likeliest token",
    "dropout_p": "dropout is (p, seed)",
    "enable_gqa": "it is not needed: query heads may be a multiple of key heads",
    "frequency_penalty": "the penalty that there is is repetition_penalty",
    "load_in_4bit": "attend.quantize() writes a file of 4 or 8 bits, which load() opens",
    "load_in_8bit": "attend.quantize() writes a file of 4 or 8 bits, which load() opens",
    "local_files_only": "it is always so: nothing is fetched",
    "max_length": "texts are not cut here",
    "need_weights": "attend.attention_weights() gives them",
    "output_attentions": "Model.record() keeps what every head attends to",
    "output_hidden_states": "Model.lens() reads the stream after each layer",
    "padding": "there is none: sequences stand one after another",
    "precision": "vectors are float32",
    "presence_penalty": "the penalty that there is is repetition_penalty",
    "return_dict": "results are arrays",
    "return_tensors": "results are NumPy arrays",
    "stream": "on_text is called with what each new token adds",
    "truncation": "texts are not cut here",
    "trust_remote_code": "no code of a model is run",
    "use_cache": "it is always so: what came before is not computed again",
}
REMARKS = {"end": "a list of ids", "prompt": "which takes a name too", "window": "(left, right)"}
LISTED = 12  # so many names are read at a glance

NUMBER, WHOLE = "a number", "a whole number"
WORDS = {"int": WHOLE, "float": NUMBER, "bool": "True or False", "str": "a text", "bytes": "bytes", "None": "None",
         "Array": "an array", "ArrayT": "an array", "Any": "a value", "object": "a value", "Callable": "a function",
         "Ids": "whole numbers [N]"}


def public(name):
    return not name.startswith("_")


def equip(module):
    """Puts a _core._Function before each function and method that nanobind made."""
    for name, thing in list(vars(module).items()):
        if type(thing).__name__ == "nb_func" and thing is not module._function:
            setattr(module, name, module._function(thing))
        elif isinstance(thing, type) and thing.__module__ == module.__name__:
            if type(vars(thing).get("__init__")).__name__ == "nb_method":
                thing.__signature__ = OfClass(thing.__init__)
            for member, value in list(vars(thing).items()):
                if type(value).__name__ == "nb_method" and public(member):
                    setattr(thing, member, module._function(value))
                elif type(value).__name__ == "nb_func" and public(member):
                    setattr(thing, member, staticmethod(module._function(value)))


# ---- Signatures ----


@functools.cache
def signature(function):
    """An inspect.Signature: of overloads the last one, which has all arguments."""
    text, _, defaults = function.__nb_signature__[-1]
    return parsed(text[text.rindex("def "):], *(defaults or ()))


def parsed(text, *defaults):
    """Of "def name(...)", as stubs have it; \\0 stands for the first of the defaults."""
    import inspect

    for n in range(len(defaults)):
        text = text.replace(f"\\{n}", f"defaults[{n}]")
    scope = {"defaults": defaults}
    exec(f"from __future__ import annotations\n{text}: ...", scope)
    return inspect.signature(next(thing for thing in scope.values() if inspect.isfunction(thing)))


# ---- What is wrong with a call ----


def explained(function, error, args, keywords):
    """What to say of a call that raised this error, or None: its own words."""
    text = str(error)
    if "(): incompatible function arguments" not in text and "() got an unexpected keyword argument" not in text:
        return None
    name = function.__qualname__
    if any(not public(part) for part in name.split(".")):
        name = sys._getframe(1).f_code.co_qualname  # the method that was called hands its arguments on
    of = signature(function)
    owner = getattr(_core, function.__qualname__.rpartition(".")[0], None)
    return what_is_wrong(name, of, args, keywords, owner) or f"{name}: expected {of}, got {', '.join(map(short, args))}"


class OfClass:
    """__signature__ of a class: its constructor's, which is read when it is asked for."""

    def __init__(self, constructor):
        self.constructor = constructor

    def __get__(self, instance, owner):
        return without_self(signature(self.constructor))


def without_self(of):
    return of.replace(parameters=list(of.parameters.values())[1:], return_annotation=of.empty)


@functools.cache
def constructor(text):
    return without_self(parsed(text))


def constructed(name, text, args, keywords):
    """The arguments of a constructor with this signature, in its order."""
    of = constructor(text)
    wrong = what_is_wrong(name, of, args, keywords)
    if wrong:
        raise TypeError(wrong)
    given = of.bind(*args, **keywords)
    given.apply_defaults()
    return list(given.arguments.values())


COUNTED_FROM_THE_END = ("layer", "head", "position", "item")


def what_is_wrong(name, signature, args, keywords, owner=None):
    """In words; None where nothing is found."""
    known = signature.parameters
    for keyword in keywords:
        if keyword not in known:
            return f"{name}() got an unexpected keyword argument {keyword!r}: {meant(keyword, list(known))}"
    try:
        given = signature.bind(*args, **keywords).arguments
    except TypeError as error:
        return f"{name}(): {error}"
    for argument, value in given.items():
        annotation = known[argument].annotation
        if argument == "self":
            if not isinstance(value, owner):
                return f"{name}: self: expected a {owner.__name__}, got {short(value)}"
            continue
        wanted = ast.parse(annotation, mode="eval").body
        if not fits(wanted, value) or (value is None and "None" not in annotation and known[argument].default is not None):
            return f"{name}: {argument}: expected {words(wanted)}, got {short(value)}"
    for argument, value in given.items():  # what is left: a number that has no place in C++'s type
        if isinstance(value, int) and not 0 <= value < 2**63 and argument not in COUNTED_FROM_THE_END:
            return f"{name}: {argument}: expected a whole number from 0 to 2**63 - 1, got {short(value)}"
    return None


def meant(keyword, known):
    for name in NAMES.get(keyword, "").split():
        if name in known:
            return f"here it is {name}" + (f", {REMARKS[name]}" if name in REMARKS else "")
    if keyword in REASONS:
        return REASONS[keyword]
    import difflib

    known = [name for name in known if name != "self"]
    close = difflib.get_close_matches(keyword, known, 1)
    if close:
        return f"did you mean {close[0]}?"
    if not known:
        return "it takes none"
    return f"expected {', '.join(known)}" if len(known) <= LISTED else "help() lists those that there are"


def short(value):
    """repr(value), where that is long its beginning."""
    try:
        text = repr(value)
    except Exception:
        text = f"<{type(value).__name__}>"
    return text if len(text) <= 80 else f"{text[:76]} ..."


def name_of(annotation):
    """The class that an annotation names, without its module and what stands in brackets."""
    if isinstance(annotation, ast.Subscript):
        annotation = annotation.value
    return annotation.attr if isinstance(annotation, ast.Attribute) else getattr(annotation, "id", str(getattr(annotation, "value", "")))


def parts_of(annotation):
    if isinstance(annotation, ast.BinOp):
        return parts_of(annotation.left) + parts_of(annotation.right)
    return [annotation]


def inside(annotation):
    """What stands in brackets behind a name."""
    return annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]


def is_whole(value):
    try:
        operator.index(value)
    except Exception:
        return False
    return True


def is_number(value):
    return isinstance(value, float) or is_whole(value) or (hasattr(value, "__float__") and not isinstance(value, str))


CHECKS = {"int": is_whole, "float": is_number, "bool": lambda value: isinstance(value, bool),
          "str": lambda value: isinstance(value, str), "bytes": lambda value: isinstance(value, bytes),
          "None": lambda value: value is None, "Callable": callable, "PathLike": lambda value: hasattr(value, "__fspath__")}


def fits(annotation, value):
    """Whether the value is what an annotation names; True where that can't be told."""
    if isinstance(annotation, ast.BinOp):
        return any(fits(part, value) for part in parts_of(annotation))
    name = name_of(annotation)
    if name in CHECKS:
        return CHECKS[name](value)
    if name == "Literal":  # which of them there are the call itself says
        return isinstance(value, tuple(type(constant.value) for constant in inside(annotation)))
    if name in ("Sequence", "Iterable", "list", "tuple"):
        return not isinstance(value, (str, bytes)) and hasattr(value, "__iter__") and (
            not isinstance(value, (list, tuple)) or name == "tuple" or not isinstance(annotation, ast.Subscript) or
            all(fits(inside(annotation)[0], each) for each in value))
    ours = getattr(_core, name, None)
    return isinstance(value, ours) if isinstance(ours, type) else True


def words(annotation):
    said = []
    for part in parts_of(annotation):
        name = name_of(part)
        if name == "Literal":
            said += [repr(constant.value) for constant in inside(part)]
        elif name == "tuple" and not isinstance(getattr(inside(part)[-1], "value", None), type(...)):
            said.append(f"({', '.join(words(each) for each in inside(part))})")
        elif name in ("Sequence", "Iterable", "list", "tuple") and isinstance(part, ast.Subscript):
            each = f"a list of {words(inside(part)[0])}"
            said.append(each.replace("of a whole number", "of whole numbers").replace("of a text", "of texts"))
        else:
            said.append("a path" if name == "PathLike" else WORDS.get(name, f"a {name.removeprefix('_')}"))
    return said[0] if len(said) == 1 else f"{', '.join(said[:-1])} or {said[-1]}"


equip(_core)
