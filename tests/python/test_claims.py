"""Whatever size a model's files claim: it opens, or is refused, within 1 GiB and five seconds of processor (SECURITY.md).

Of each type that config.cpp's table has there are models with hardly a number in them. Every number of their configurations is changed, and
so are those of the files beside a configuration and of a GGUF file's header. What weights a configuration asks for is what attend says is
missing: a new type needs no list here.
"""

import contextlib
import itertools
import json
import pathlib
import re
import struct
import subprocess
import sys

import numpy
import pytest
from safetensors.numpy import save_file

import attend

REPOSITORY = pathlib.Path(__file__).parents[2]
TABLE = json.loads(re.search(r'R"json\((.*?)\)json"', (REPOSITORY / "src/models/config.cpp").read_text(), re.S)[1])
TYPES = [name for name in TABLE if name != "every"]
CLAIMS = [0, -1, 1000, 65_534, 10**6, 2**31 - 1, 2**40 - 2, 2**62, 1e300]


# ---- Configurations ----

WIDTHS = {"hidden_size", "dim", "n_embd", "d_model"}
HEADS = {"num_attention_heads", "n_heads", "n_head", "num_heads", "encoder_attention_heads", "decoder_attention_heads"}
STACKS = {"num_hidden_layers", "n_layers", "n_layer", "num_layers", "encoder_layers", "decoder_layers"}
LEAST = {"head_dim": 2, "original_max_position_embeddings": 2, "max_position_embeddings": 4, "n_positions": 4, "decoder_start_token_id": 0,
         "relative_attention_num_buckets": 32, "relative_attention_max_distance": 128}


def small(type, width=2, heads=1, layers=1):
    """The configuration of its class, with sizes as small as they may be."""
    config = {"model_type": type, "rotary_pct": 1.0}
    for key, usual in TABLE[type]["defaults"].items():
        size = {**dict.fromkeys(WIDTHS, width), **dict.fromkeys(HEADS, heads), **dict.fromkeys(STACKS, layers), **LEAST}.get(key, 1)
        config[key] = size if isinstance(usual, int) and not isinstance(usual, bool) else usual
    return config


# Keys that have numbers where they are there, beside the defaults of classes; "is": what a type's defaults must have for it.
MORE = [
    {"is": "rope_parameters", "rope_theta": 10000.0, "rotary_pct": 1.0, "rotary_emb_base": 10000, "eos_token_id": 0,
     "rope_scaling": {"rope_type": "yarn", "factor": 2.0, "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
                      "attention_factor": 1.0}},
    {"is": "rope_parameters", "rope_scaling": {"rope_type": "llama3", "factor": 2.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                               "original_max_position_embeddings": 4}},
    {"is": "rope_parameters", "partial_rotary_factor": 1.0, "rope_scaling": {
        "rope_type": "longrope", "factor": 2.0, "short_factor": [1.0], "long_factor": [1.0], "original_max_position_embeddings": 4}},
    {"is": "rope_parameters", "rope_scaling": {"rope_type": "linear", "factor": 2.0}},
    {"is": "query_pre_attn_scalar", "sliding_window_pattern": 6, "rope_local_base_freq": 10000.0},
    {"is": "no_rope_layers", "no_rope_layers": [1], "use_sliding_window": True, "sliding_window": 1},
    {"is": "local_attention", "global_attn_every_n_layers": 3, "global_rope_theta": 160000.0, "local_rope_theta": 10000.0},
    {"is": "tie_word_embeddings", "eos_token_id": [0]}]
# What is read and is no number; what is read of other files has a test of its own.
NO_NUMBERS = set("""model_type architectures attention_bias mlp_bias tie_word_embeddings rope_type type rope_parameters rope_scaling
    layer_types truncate dtype torch_dtype hidden_act hidden_activation activation_function activation feed_forward_proj dense_act_fn
    is_gated_act scale_decoder_outputs scale_embedding norm_bias use_parallel_residual use_sliding_window scale_attn_weights
    scale_attn_by_inverse_layer_idx do_layer_norm_before layer_norm_elementwise_affine _remove_final_layer_norm enable_bias
    is_encoder_decoder share_encoder_decoder_embeddings sliding_attention full_attention""".split())
SAMPLES = {"narrow": {}, "wide": {"width": 1024, "layers": 0}, "of many heads": {"width": 512, "heads": 256}}


def configurations(type, sample="narrow"):
    config = small(type, **SAMPLES[sample])
    yield config
    for more in MORE if sample == "narrow" else []:
        if more["is"] in config:
            yield config | {key: value for key, value in more.items() if key != "is"}


def changed(config):
    """It with each of its numbers in turn as each of the claims, and what was changed."""
    def places(value, path=()):
        if isinstance(value, (dict, list)):
            for key, each in value.items() if isinstance(value, dict) else enumerate(value):
                yield from places(each, (*path, key))
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            yield path

    for path, claim in itertools.product(list(places(config)), CLAIMS):
        copy = json.loads(json.dumps(config))
        at = copy
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = claim
        yield copy, f"{path} = {claim}"


def weights_of(folder, config):
    """Those that it asks for, of ones: names and shapes are what attend says is missing or of another shape."""
    (folder / "config.json").write_text(json.dumps(config))
    tensors = {}
    while True:
        save_file(tensors, folder / "model.safetensors")
        try:
            attend.Model.load(folder)
            return tensors
        except OSError as error:
            asked = dict.fromkeys(re.findall(r"'([\w.]+)' is missing", str(error)), "")
            asked |= dict(re.findall(r"'([\w.]+)' has shape \[[\d,]*\], expected \[([\d,]*)\]", str(error)))
            assert asked, f"{config}: {error}"
            tensors |= {name: numpy.ones([int(size) for size in shape.split(",") if size], "f4") for name, shape in asked.items()}


# ---- Other files ----

TOKENIZER = {"version": "1.0", "pre_tokenizer": {"type": "WhitespaceSplit"}, "added_tokens": [
    {"id": 3, "content": "<m>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}],
    "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "a", "type_id": 0}}, {"Sequence": {
        "id": "A", "type_id": 0}}], "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"a": {"id": "a", "ids": [1], "tokens": ["a"]}}},
    "decoder": {"type": "Strip", "content": "a", "start": 1, "stop": 1},
    "model": {"type": "WordPiece", "unk_token": "?", "max_input_chars_per_word": 9, "continuing_subword_prefix": "##",
              "vocab": {"?": 0, "a": 1, "##a": 2}}}
BESIDE = {
    "modules.json": [{"name": path, "type": f"sentence_transformers.models.{name}", "path": path} for name, path in
                     [("Transformer", ""), ("Pooling", "1_Pooling"), ("Dense", "2_Dense")]],
    "1_Pooling/config.json": {"word_embedding_dimension": 2, "pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True},
    "2_Dense/config.json": {"in_features": 4, "out_features": 1, "bias": False},
    "sentence_bert_config.json": {"max_seq_length": 3}, "config_sentence_transformers.json": {"truncate_dim": 1},
    "tokenizer_config.json": {"model_max_length": 3}, "tokenizer.json": TOKENIZER}
GENERATION = {"max_new_tokens": 1, "max_length": 2, "min_length": 0, "num_beams": 1, "top_k": 1, "top_p": 1.0, "temperature": 1.0,
              "eos_token_id": [0], "pad_token_id": 0, "bos_token_id": 0, "suppress_tokens": [0], "bad_words_ids": [[0]],
              "forced_bos_token_id": 0, "repetition_penalty": 1.0, "no_repeat_ngram_size": 0, "decoder_start_token_id": 0}


def gguf_numbers(whole):
    """Where a header has whole numbers, lengths and counts, of what form, and which they are."""
    forms = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
    found, at = [], 4

    def take(form, what):
        nonlocal at
        found.append((at, form.upper(), what)) if form not in "f?d" else None
        at += struct.calcsize(form)
        return struct.unpack_from(form, whole, at - struct.calcsize(form))[0]

    def text(what):
        nonlocal at
        size = take("Q", f"the length of {what}")
        at += size
        return whole[at - size:at].decode()

    def value(kind, key):
        text(key) if kind == 8 else take(forms[kind], key)

    take("I", "version")
    tensors, values = take("Q", "tensors"), take("Q", "values")
    for _ in range(values):
        key = text("a key")
        kind = take("I", f"the type of {key}")
        if kind != 9:
            value(kind, key)
            continue
        kind, count = take("I", f"the type of {key}"), take("Q", f"the count of {key}")
        for _ in range(count):
            value(kind, key)
    for _ in range(tensors):
        name = text("a tensor's name")
        for _ in range(take("I", f"the dimensions of {name}")):
            take("Q", f"the shape of {name}")
        take("I", f"the type of {name}")
        take("Q", f"the place of {name}")
    return found


# ---- Within limits, in a process of its own ----

def attempt(what, path, calls=True):
    """It opens, or it is refused; and a call computes, or is refused."""
    print(what, flush=True)
    faults.limit(5, 1 << 30)
    try:
        model = attend.Model.load(path)
    except OSError:
        return
    uses = (lambda: model.forward([0]), lambda: model.generate([0], max_new_tokens=1), lambda: model.embed("a"), model.cache)
    for use in uses if calls else ():
        with contextlib.suppress(ValueError, OSError):
            use()


def attempt_types(folder):
    for type, (name, sizes) in itertools.product(TYPES, SAMPLES.items()):
        weights_of(folder, small(type, **sizes))
        for n, config in enumerate(configurations(type, name)):
            for copy, what in changed(config):
                (folder / "config.json").write_text(json.dumps(copy))
                attempt(f"{type}, {name}, configuration {n}: {what}", folder, calls=name == "narrow")


def attempt_a_list(folder):
    """SmolLM3's no_rope_layers, of 300 layers and more numbers: read once for all of them, not for each."""
    config = small("smollm3") | {"no_rope_layers": [1], "use_sliding_window": True, "sliding_window": 1}
    tensors = weights_of(folder, config)
    for name in [name for name in tensors if ".0." in name]:
        tensors |= {name.replace(".0.", f".{n}."): tensors[name] for n in range(1, 300)}
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 300, "no_rope_layers": [1] * 300_000}))
    attempt("no_rope_layers", folder)


def attempt_beside(folder):
    weights_of(folder, small("bert") | {"vocab_size": 4})
    put(folder, BESIDE)
    save_file({"linear.weight": numpy.ones((1, 4), "f4")}, folder / "2_Dense/model.safetensors")
    assert attend.Model.load(folder).embed("a <m>").shape == (1, 1)
    for file, content in BESIDE.items():
        for copy, what in changed(content):
            put(folder, BESIDE | {file: copy})
            attempt(f"{file}: {what}", folder)


def attempt_generation(folder):
    for type, (copy, what) in itertools.product(("llama", "t5"), changed(GENERATION)):
        put(folder, {"generation_config.json": GENERATION})
        weights_of(folder, small(type) | {"vocab_size": 4})
        put(folder, {"generation_config.json": copy})
        attempt(f"{type}: {what}", folder)


def attempt_gguf(folder):
    for file in sorted((REPOSITORY / "tests/fuzz/corpus/model").glob("*_gguf")):
        whole = file.read_bytes()
        for (at, form, what), claim in itertools.product(gguf_numbers(whole), [0, 65_534, 10**6, 2**31 - 1, 2**40, 2**64 - 1]):
            if claim < 1 << 8 * struct.calcsize(form):
                (folder / "x.gguf").write_bytes(whole[:at] + struct.pack(form, claim) + whole[at + struct.calcsize(form):])
                attempt(f"{file.name}: {what} = {claim}", folder / "x.gguf")


def attempt_words(folder):
    """Tokens and texts of one letter, in which every place is the beginning of almost every token."""
    print("added tokens", flush=True)
    faults.limit(5, 1 << 30)
    token = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    tokens = [token | {"id": 4 + n, "content": "a" * n + "b"} for n in range(1500)]
    tokenizer = attend.Tokenizer(json.dumps(TOKENIZER | {"pre_tokenizer": None, "post_processor": None, "added_tokens": [
        *TOKENIZER["added_tokens"], *tokens]}))
    assert len(tokenizer.encode("a" * 10**6 + " ").ids) == 1  # too long a word
    print("a long word", flush=True)
    faults.limit(5, 1 << 30)
    model = TOKENIZER["model"] | {"max_input_chars_per_word": 2**40, "vocab": {"?": 0, "a": 1, "##a": 2, "##" + "a" * 3000 + "b": 3}}
    tokenizer = attend.Tokenizer(json.dumps(TOKENIZER | {"model": model, "post_processor": None, "added_tokens": []}))
    assert len(tokenizer.encode("a" * 30_000).ids) == 30_000


def put(folder, files):
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(content))


# ---- Tests ----

def test_every_number_that_is_read_is_changed():
    """Those of the families' pages, of what decoders share and of rotary positions."""
    read = set()
    for path in [REPOSITORY / "src/models/config.cpp", *sorted((REPOSITORY / "src/models/families").glob("*.cpp"))]:
        read |= set(re.findall(r'\["(\w+)"\]|(?:given|has)\("(\w+)"\)', path.read_text()))
    keys = {key for pair in read for key in pair if key}

    def inside(value):
        for key, each in value.items():
            yield key
            if isinstance(each, dict):
                yield from inside(each)

    assert not keys - NO_NUMBERS - {key for type in TYPES for config in configurations(type) for key in inside(config)}


@pytest.mark.parametrize("attempts", ["types", "a_list", "beside", "generation", "gguf", "words"])
def test_claims(attempts, tmp_path):
    done = subprocess.run([sys.executable, __file__, attempts, tmp_path], capture_output=True, text=True,
                          env={"PYTHONPATH": str(REPOSITORY / "tests"), "OPENBLAS_NUM_THREADS": "1"})
    assert done.returncode == 0, (done.returncode, done.stdout.splitlines()[-1:], done.stderr[-2000:])
    assert done.stdout


if __name__ == "__main__":
    import faults

    attend.set_num_threads(1)
    globals()[f"attempt_{sys.argv[1]}"](pathlib.Path(sys.argv[2]))
