"""A model of a few kilobytes, for tests of what surrounds models: its folder, with a tokenizer."""

import json
import pathlib
import subprocess

import numpy
from safetensors.numpy import save_file

CONFIG = {"model_type": "llama", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
          "num_key_value_heads": 2, "head_dim": 4, "vocab_size": 1000, "max_position_embeddings": 64, "rms_norm_eps": 1e-6,
          "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": False, "eos_token_id": None}
WORDS = ["?", "the", "cat", "sat", *(f"word{n}" for n in range(4, CONFIG["vocab_size"]))]
TOKENIZER = {"version": "1.0", "pre_tokenizer": {"type": "WhitespaceSplit"},
             "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
             "model": {"type": "WordPiece", "unk_token": "?", "max_input_chars_per_word": 100, "continuing_subword_prefix": "##",
                       "vocab": {word: n for n, word in enumerate(WORDS)}}}


def bytes_tokenizer():
    """Of bytes: the characters that stand for them in BPE's files, in the order of their bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    vocabulary = {chr(byte if byte in plain else 256 + others.index(byte)): byte for byte in range(256)}
    steps = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": steps, "post_processor": None, "decoder": steps,
            "model": {"type": "BPE", "vocab": vocabulary, "merges": []}}


# Rows of whole blocks, which Q8_0 can have.
WIDE = CONFIG | {"hidden_size": 64, "intermediate_size": 96, "head_dim": 16}


def tensors(config=CONFIG):
    random = numpy.random.default_rng(0)
    V, E, I, D = (config[name] for name in ("vocab_size", "hidden_size", "intermediate_size", "head_dim"))
    shapes = {"model.embed_tokens": (V, E), "lm_head": (V, E), "model.norm": (E,)}
    for layer in range(config["num_hidden_layers"]):
        for name, shape in {"self_attn.q_proj": (4 * D, E), "self_attn.k_proj": (2 * D, E), "self_attn.v_proj": (2 * D, E),
                            "self_attn.o_proj": (E, 4 * D), "mlp.gate_proj": (I, E), "mlp.up_proj": (I, E),
                            "mlp.down_proj": (E, I), "input_layernorm": (E,), "post_attention_layernorm": (E,)}.items():
            shapes[f"model.layers.{layer}.{name}"] = shape
    return {f"{name}.weight": random.standard_normal(shape, numpy.float32) for name, shape in shapes.items()}


def write(folder, tokenizer=None, config=CONFIG):
    """The folder, with a model in it."""
    folder = pathlib.Path(folder)
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors(config), folder / "model.safetensors")
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer or TOKENIZER))
    return str(folder)


def write_chat(folder, tokenizer=None, longest=600):
    """The folder, with a decoder that has a chat template, of bytes unless it has a tokenizer."""
    size = len(WORDS) if tokenizer else 256
    write(folder, tokenizer or bytes_tokenizer(), CONFIG | {"max_position_embeddings": longest, "vocab_size": size})
    template = pathlib.Path(__file__).parent / "golden" / "chat" / "chatml.jinja"
    (pathlib.Path(folder) / "chat_template.jinja").write_text(template.read_text())
    return str(folder)


def write_task(folder, head, labels):
    """The folder, with a model that has a head for "SequenceClassification" or "TokenClassification" in place of words."""
    folder = pathlib.Path(write(folder))
    config = CONFIG | {"architectures": [f"LlamaFor{head}"], "id2label": dict(enumerate(labels))}
    (folder / "config.json").write_text(json.dumps(config))
    random, shape = numpy.random.default_rng(1), (len(labels), CONFIG["hidden_size"])
    made = {name: each for name, each in tensors().items() if name != "lm_head.weight"} | {
        "score.weight": random.standard_normal(shape, numpy.float32)}
    if head == "TokenClassification":
        made["score.bias"] = random.standard_normal(shape[0], numpy.float32)
    save_file(made, folder / "model.safetensors")
    return str(folder)


def write_colbert(folder):
    """The folder, with a vector of eight numbers for each token, and queries that word9 fills up to ten tokens."""
    folder = pathlib.Path(write(folder))
    of_tokens = {"module_input_name": "token_embeddings", "module_output_name": "token_embeddings"}
    dense = {"in_features": CONFIG["hidden_size"], "out_features": 8, "bias": False,
             "activation_function": "torch.nn.modules.linear.Identity"}
    kinds = {"Transformer": None, "Dense": dense | of_tokens, "MultiVectorMask": {"skiplist_words": ["."]}, "Normalize": of_tokens}
    for kind, config in kinds.items():
        (folder / kind).mkdir()
        (folder / kind / "config.json").write_text(json.dumps(config))
    weight = numpy.random.default_rng(2).standard_normal((8, CONFIG["hidden_size"]), numpy.float32)
    save_file({"linear.weight": weight}, folder / "Dense/model.safetensors")
    files = {"modules.json": [{"name": kind, "path": "" if kind == "Transformer" else kind, "type": f"sentence_transformers.models.{kind}"}
                              for kind in kinds],
             "config_sentence_transformers.json": {"model_type": "MultiVectorEncoder"},
             "sentence_bert_config.json": {"query_expansion": {"strategy": "fixed", "length": 10, "token": "word9"}}}
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    return str(folder)


def write_autoencoder(folder, E=CONFIG["hidden_size"]):
    """The folder, with a sparse autoencoder of three features in it, of the stream before the model's last layer."""
    folder = pathlib.Path(folder)
    folder.mkdir(exist_ok=True)
    random = numpy.random.default_rng(0)
    shapes = {"W_enc": (E, 3), "W_dec": (3, E), "b_enc": (3,), "b_dec": (E,)}
    config = {"architecture": "standard", "d_in": E, "d_sae": 3, "metadata": {"hook_name": "blocks.0.hook_resid_post"}}
    (folder / "cfg.json").write_text(json.dumps(config))
    save_file({name: random.standard_normal(shape, numpy.float32) for name, shape in shapes.items()}, folder / "sae_weights.safetensors")
    return str(folder)


def asks(command, folder):
    """A function that runs `attend model tiny ARGUMENTS` in the folder: what it printed, or what it told where it failed."""
    def attend(*arguments, status=0):
        done = subprocess.run([command, "model", "tiny", *arguments], cwd=folder, capture_output=True, text=True)
        assert done.returncode == status, done.stderr
        assert not status or done.stdout == ""
        return done.stderr if status else done.stdout

    return attend
