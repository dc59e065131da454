"""config.json as attend.Model reads it, beside the configuration classes of Transformers and what their models compute.

The table in src/models/config.cpp is held against the classes, and against the keys that their code reads. Then every key of tiny
models' configurations is taken out and changed, and every key that there is besides is put in: attend computes what eager computes,
or refuses and names the key. --every-mutation: all of them, not a sample.
"""

import dataclasses
import json
import os
import pathlib
import random
import re
import typing

import numpy as np
import pytest
import torch

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported

import transformers
from safetensors.torch import load_file, save_file
from tiny_models import BOTH, GPT2, SHAPE, TOLERANCE, edit, far, hidden_of, mistral, qwen2, written
from tiny_models import CASES as ALONE
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS, RopeParameters
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

import attend

CASES = ALONE | BOTH
DECODER_IDS = [0, 17, 5, 60, 31]  # of encoder-decoders
TABLE = json.loads(re.search(r'R"json\((.*?)\)json"', pathlib.Path("src/models/config.cpp").read_text(), re.S)[1])
TYPES = [name for name in TABLE if name not in ("every", "jina_bert")]  # Jina's BERT has no class there: test_published_configs.py

# Keys that Transformers' classes and their code know, and that change no number of a model that is read and not trained.
WITHOUT_EFFECT = {
    # what is dropped in training, how it begins, and what else it needs
    *"attention_dropout attention_probs_dropout_prob attn_pdrop classifier_dropout dropout embd_pdrop hidden_dropout_prob".split(),
    *"hidden_dropout layerdrop init_std".split(),
    *"qa_dropout resid_pdrop seq_classif_dropout summary_first_dropout summary_last_dropout classifier_dropout_prob".split(),
    *"initializer_range gradient_checkpointing initializer_cutoff_factor embedding_dropout mlp_dropout".split(),
    *"activation_dropout dropout_rate encoder_layerdrop decoder_layerdrop init_std initializer_factor".split(),
    # a task's own layers
    *"id2label label2id num_labels problem_type summary_activation summary_proj_to_labels summary_type summary_use_proj".split(),
    *"classifier_activation classifier_bias classifier_pooling decoder_bias sparse_prediction sparse_pred_ignore_index".split(),
    # what forward() returns, and keeps
    *"return_dict output_attentions output_hidden_states output_cross_attentions use_cache".split(),
    # how it is computed: in parts, in another order, by several machines
    *"chunk_size_feed_forward pretraining_tp reorder_and_upcast_attn attn_implementation base_model_tp_plan base_model_pp_plan".split(),
    *"base_model_ep_plan base_model_fsdp_plan deterministic_flash_attn".split(),
    # of other types
    *"is_causal is_decoder add_cross_attention tie_word_embeddings".split(),
    # ids: the embedding of padding is a row as any other; where a text ends is test_the_ids_that_end_a_text's
    *"bos_token_id eos_token_id pad_token_id decoder_start_token_id cls_token_id sep_token_id forced_eos_token_id".split(),
    # the dtype, which the calls here give: test_the_dtype_is_the_configurations has it
    *"dtype torch_dtype".split(),
    # where the weights and the configuration are from
    *"architectures name_or_path transformers_version gguf_file".split(),
    # what Gemma 3's class keeps of another key
    "_sliding_window_pattern",
    # weights that are in the file, whatever made them
    "sinusoidal_pos_embds",
    # defaults that are not asked for after the first reading, and checks of what is refused here as well
    *"default_theta default_rope_type ignore_keys_at_rope_validation num_heads mlp_layer_types mtp_layer_types".split(),
    # what a decoder's own keys are called once more, without their "decoder_"
    *"ffn_dim layerdrop start_token_id".split(),
    # of models that see
    *"vision_aspect_ratio vision_feature_layer vision_feature_select_strategy".split(),
    *transformers.GenerationConfig()._get_default_generation_params(),
}
# What else is read where it is there: of all types, of decoders, and of those with rotary positions.
BESIDES = {"every": {"model_type"}, "is_causal": {"eos_token_id"}, "encoder_layers": {"eos_token_id"},
           "feed_forward_proj": {"eos_token_id", "decoder_start_token_id", "dense_act_fn", "is_gated_act", "scale_decoder_outputs",
                                 "tie_word_embeddings"},
           "use_parallel_residual": {"rotary_pct", "rotary_emb_base"},
           "query_pre_attn_scalar": {"rope_local_base_freq", "sliding_window_pattern"}, "rope_parameters": {
               "rope_scaling", "rope_theta", "partial_rotary_factor", "original_max_position_embeddings", "head_dim",
               "layer_types"},
           "local_attention": {"global_attn_every_n_layers", "global_rope_theta", "local_rope_theta"}}


def known(type):
    """What the table says of a type: the keys that are computed with, and all that it has an opinion on."""
    row = {part: dict(TABLE[type].get(part, {})) for part in ("defaults", "aliases", "only")}
    row["only"] |= TABLE["every"]["only"]
    row["besides"] = {key: None for of, keys in BESIDES.items() if of in {"every", *row["defaults"], *row["only"]} for key in keys}
    return row


def is_known(type, key):
    return any(key in part for part in known(type).values())


def without_effect(type, key):
    return key in WITHOUT_EFFECT and not is_known(type, key)


# ---- The table ----

@pytest.mark.parametrize("type", TYPES)
def test_the_table_is_as_the_class(type):
    row, fields = known(type), {each.name: each for each in dataclasses.fields(CONFIG_MAPPING[type])}
    assert row["defaults"] == {key: fields[key].default for key in row["defaults"]}
    nullable = {key for key in row["defaults"] if NONE in typing.get_args(fields[key].type)}
    nullable -= {"pad_token_id"}  # RoBERTa's class takes null, and its code then raises a TypeError
    assert nullable == {key for key, value in row["defaults"].items() if value is None} | set(TABLE[type].get("nullable", []))
    assert row["aliases"] == CONFIG_MAPPING[type].attribute_map
    assert not {key for key in fields if not is_known(type, key) and not without_effect(type, key)}


NONE = type(None)


@pytest.mark.parametrize("name", ["bert", "roberta", "xlm-roberta", "camembert", "distilbert", "mpnet", "albert", "electra",
                                  "nomic_bert", "gte", "modernbert", "gpt2", "llama", "yarn betas", "mistral window",
                                  "qwen2 windows", "qwen3 windows", "smollm3 windows", "phi3 longrope", "olmo2", "gemma2", "gemma3",
                                  "gemma3 both sides", "gpt_neox", "opt", "bart", "marian", "t5"])
def test_every_key_that_is_read_is_known(name, tmp_path, monkeypatch):
    """Whatever Transformers asks a configuration for on the way from the folder to hidden states and tokens."""
    folder, read = written(tmp_path, CASES[name]), set()
    ask = transformers.PreTrainedConfig.__getattribute__

    def asked(self, key):
        read.add(key)
        return ask(self, key)

    monkeypatch.setattr(transformers.PreTrainedConfig, "__getattribute__", asked)
    model = opened(folder, CASES[name])[0]
    computed(model, np.arange(6, 20), None)
    if CASES[name].decodes and name not in BOTH:  # theirs can't generate with fewer layers in T5's encoder
        model.generate(torch.arange(6, 20)[None], max_new_tokens=3)
    monkeypatch.undo()
    own = {key for key in read if key.startswith("__") or callable(getattr(transformers.PreTrainedConfig, key, None))}
    type = json.loads((folder / "config.json").read_text())["model_type"]
    unsaid = {key for key in read - own if not is_known(type, key) and not without_effect(type, key)}
    # what it keeps of itself, and sets when it is read
    assert unsaid <= {"_attn_implementation", "_attn_implementation_internal", "_experts_implementation", "_name_or_path",
                      "_experts_implementation_internal", "_output_attentions", "_post_init_done", "is_heterogeneous",
                      "sub_configs", "sub_configs_defaults", "rope_parameters", "head_dim", "layer_types"}


# ---- Every key, changed ----

# A configuration of every type, and of every kind of rotary positions, of which only the keys of these are changed.
BASES = ["bert", "roberta", "xlm-roberta", "camembert", "distilbert", "mpnet", "albert groups", "electra", "nomic_bert", "gte",
         "modernbert", "gpt2", "llama tied", "old, as small as it can be", "mistral window", "qwen2 windows", "qwen3 windows",
         "smollm3 windows", "phi3 partial, window", "olmo2 bias, tied", "gemma2", "gemma3 scaled", "gemma3 old", "gemma3 both sides",
         "gpt_neox", "gpt_neox old", "opt as 350m", "bart", "marian", "t5 gated", "t5 old", "t5 encoder"]
ROTARY_BASES = ["modernbert scalings", "modernbert, old", "linear", "dynamic", "llama3", "yarn betas", "longrope", "old llama3",
                "phi3 longrope", "phi3 old"]
ROTARY = [*RopeParameters.__annotations__, "type", "full_attention"]
OTHERS = [None, True, False, 0, 1, 2, -1, 0.5, 3.0, "x", [], [1], {}, {"a": 1}]
NAMED = {
    "feed_forward_proj": ["relu", "gated-gelu", "gated-silu", "gated-x", "a-b-c", "wide-gelu"], "dense_act_fn": ["gelu", "relu"],
    "hidden_activation": ["relu", "mish", "prelu"],
    "hidden_act": ["relu", "gelu", "silu", "mish", "prelu"], "activation": ["relu", "xielu"],
    "activation_function": ["relu", "prelu"],
    "rope_type": ["default", *ROPE_INIT_FUNCTIONS], "type": ["default", *ROPE_INIT_FUNCTIONS], "sliding_window": [4, 64],
    "layer_types": [["full_attention"] * 3, ["sliding_attention"] * 3, ["full_attention"] * 2, ["full_attention", "sliding_attention"] * 2],
    "position_embedding_type": ["absolute", "relative_key"],
    "rope_scaling": [{"type": "linear", "factor": 2.0}, {"rope_type": "yarn", "factor": 2.0, "rope_theta": 5e3}],
    "rope_parameters": [{"rope_theta": 5e3}, {"full_attention": {"rope_theta": 5e3, "rope_type": "default"}}],
    "full_attention": [{"rope_theta": 5e3, "rope_type": "default"}], "sliding_attention": [{"rope_theta": 5e3}],
    "text_config": [{"hidden_size": 16}],
    "per_layer_config": [{"1": {"num_attention_heads": 2}}], "attribute_map": [{"num_attention_heads": "num_labels"}],
}
# Where the number of what a tensor has is another, the tensors that do not fit are named and not the key.
SHAPES = {*SHAPE, *GPT2, "n_inner", "dim", "n_layers", "n_heads", "hidden_dim", "type_vocab_size", "head_dim", "num_key_value_heads",
          "norm_bias", "embedding_size", "num_hidden_groups", "inner_group_num", "relative_attention_num_buckets",
          "d_model", "d_kv", "d_ff", "num_heads", "num_layers", "num_decoder_layers", "decoder_vocab_size", "is_gated_act",
          "feed_forward_proj", "share_encoder_decoder_embeddings",
          *(f"{stack}_{each}" for stack in ("encoder", "decoder") for each in ("layers", "ffn_dim", "attention_heads")),
          "attention_bias", "mlp_bias", "tie_word_embeddings", "ffn_dim", "word_embed_proj_dim", "enable_bias", "do_layer_norm_before",
          "layer_norm_elementwise_affine", "_remove_final_layer_norm"} - {"bos_token_id", "eos_token_id", "pad_token_id"}


def others(key, value, type):
    """What else could stand there: a few, where it has no effect."""
    if without_effect(type, key):
        return [None, True, 2, "x"]
    found = [*NAMED.get(key, []), *OTHERS]
    if isinstance(value, bool):
        return found
    if isinstance(value, float):  # whose class takes no whole number
        found = [float(each) if isinstance(each, int) and not isinstance(each, bool) else each for each in found]
    if isinstance(value, (int, float)):
        return [*found, value + 1, value * 2, value / 2, -value, str(value), [value]]
    if isinstance(value, list):
        return [*found, value[::-1], value[1:], value * 2]
    return found


def changes(config, keys, type):
    """(key, configuration) for each key without it, and with each other value of it."""
    for key in sorted(keys):
        if key in config:
            yield key, {name: value for name, value in config.items() if name != key}
        for value in others(key, config.get(key), type):
            if key not in config or json.dumps(value) != json.dumps(config[key]):
                yield key, config | {key: value}


def mutations(config, name):
    type = config["model_type"]
    keys = BESIDES["rope_parameters"] | {"rope_parameters", "max_position_embeddings", "partial_rotary_factor"}
    if name in BASES:
        keys = keys.union(config, WITHOUT_EFFECT, *known(type).values(), [each.name for each in dataclasses.fields(CONFIG_MAPPING[type])])
    yield from changes(config, keys - {"model_type"}, type)
    for part in sorted({"rope_parameters", "rope_scaling"}.intersection(config)):
        if isinstance(config[part], dict):
            for key, changed in changes(config[part], {*config[part], *ROTARY}, type):
                yield key, config | {part: changed}
            for kind in sorted({"full_attention", "sliding_attention"}.intersection(config[part])):
                for key, changed in changes(config[part][kind], {*config[part][kind], *ROTARY}, type):
                    yield key, config | {part: config[part] | {kind: changed}}


def opened(folder, case):
    """Transformers' model, and whether it made up weights that the file does not have as the configuration has it."""
    model, info = getattr(transformers, case.name).from_pretrained(
        folder, attn_implementation="eager", dtype=torch.float32, output_loading_info=True)
    return model.eval(), bool(info["missing_keys"] or info["mismatched_keys"])


def computed(model, ids, types):
    """Of an encoder-decoder logits, else hidden states: of a decoder the last one by its cache, but for a window of 1, of which
    their cache keeps all keys."""
    inputs = torch.from_numpy(ids)[None]
    with torch.inference_mode():
        if model.config.is_encoder_decoder:
            return model(input_ids=inputs, decoder_input_ids=torch.tensor([DECODER_IDS]), return_dict=True).logits[0]
        if types is not None:
            return model.base_model(input_ids=inputs, token_type_ids=torch.from_numpy(types)[None], return_dict=True).last_hidden_state[0]
        both_sides = vars(model.config).get("use_bidirectional_attention")  # a key that is not counted as read
        if not model.can_generate() or both_sides or getattr(model.config, "sliding_window", None) == 1:
            return model.base_model(input_ids=inputs, return_dict=True).last_hidden_state[0]
        first = model.base_model(input_ids=inputs[:, :-1], use_cache=True, return_dict=True)
        last = model.base_model(input_ids=inputs[:, -1:], past_key_values=first.past_key_values, return_dict=True)
        return torch.cat([first.last_hidden_state[0], last.last_hidden_state[0]])


def theirs(folder, case, ids, types):
    """What eager computes; None where it raises, makes up weights, or gives numbers that are none."""
    try:
        model, invented = opened(folder, case)
        hidden = computed(model, ids, types)
    except Exception:  # of any kind: a KeyError of rope_parameters, a TypeError of null, ...
        return None
    return None if invented or not torch.isfinite(hidden).all() else hidden


def ours(folder, ids, types):
    model = attend.Model.load(folder, dtype="float32")
    if model.info.encoder_decoder:
        return model.logits(model.forward(ids, decoder_ids=DECODER_IDS))
    return model.forward(ids, types=types)


def is_clear(said, type, key):
    """Whether a refusal names the file and the key, or what the key asked for and the file of weights does not have."""
    if key in SHAPES and re.search("has shape|is missing|is not known|heads|one for each|half a head", said):
        return True
    names = [key, known(type)["aliases"].get(key, key), *(["rope_parameters", "rope_scaling"] if key in ROTARY else []),
             key.removeprefix("use_")]
    return "config.json" in said and any(name in said for name in names)


def fault(folder, case, key, type, ids, types, plain):
    """What is wrong with what attend makes of the folder; None: nothing."""
    expected = theirs(folder, case, ids, types)
    try:
        got = ours(folder, ids, types)
    except OSError as error:
        return f"refused: {error}" if without_effect(type, key) else None if is_clear(str(error), type, key) else f"unclear: {error}"
    except ValueError as error:
        return None if expected is None or "the model takes at most" in str(error) else f"raised: {error}"
    if expected is not None:
        return None if far(got, expected) <= TOLERANCE else f"off by {far(got, expected):.1e}"
    if is_known(type, key) or key in ROTARY:
        return "computed what Transformers refuses"
    return None if np.array_equal(got, plain) else "changed"


@pytest.fixture
def one_thread():
    """The models are tiny: what threads would save is less than what they take."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("name", BASES + ROTARY_BASES)
def test_what_is_changed_is_computed_or_refused(name, tmp_path, request):
    case = CASES[name]
    folder = written(tmp_path, case)
    (folder / "generation_config.json").unlink(missing_ok=True)
    path = folder / "config.json"
    config = json.loads(path.read_text())
    every = list(mutations(config, name))
    if not request.config.getoption("--every-mutation"):
        every = random.Random(name).sample(every, 25)
    ids = np.random.default_rng(1).integers(6, 99, 40)
    types = np.random.default_rng(2).integers(2, size=40) if case.has_types else None
    plain = ours(folder, ids, types)
    faults = []
    for key, changed in every:
        path.write_text(json.dumps(changed))
        wrong = fault(folder, case, key, config["model_type"], ids, types, plain)
        if wrong:
            faults.append(f"{key}: {json.dumps(changed.get(key, '(without)'))[:80]}: {wrong}")
    assert not faults, f"{len(faults)} of {len(every)}:\n" + "\n".join(faults)


# ---- What was read otherwise ----

def put(folder, **tensors):
    """Other tensors in the folder's file; None: no such tensor."""
    path = folder / "model.safetensors"
    all = load_file(path) | {name.replace("__", "."): each for name, each in tensors.items()}
    save_file({name: each for name, each in all.items() if each is not None}, path, {"format": "pt"})


def refusal(folder):
    with pytest.raises(OSError) as caught:
        attend.Model.load(folder)
    return str(caught.value)


@pytest.mark.parametrize("case", [mistral(max_position_embeddings=4200, num_hidden_layers=1), qwen2(
    max_position_embeddings=4200, num_hidden_layers=1, use_sliding_window=True, max_window_layers=0)], ids=["mistral", "qwen2"])
def test_a_window_that_is_not_said_is_of_4096(case, tmp_path):
    folder = written(tmp_path, case)
    edit(folder, sliding_window=None, layer_types=None)
    ids = np.random.default_rng(1).integers(6, 99, 4150)
    expected, got = hidden_of(opened(folder, case)[0], ids), attend.Model.load(folder).forward(ids)
    assert far(got, expected) <= TOLERANCE
    edit(folder, sliding_window="null")
    assert far(attend.Model.load(folder).forward(ids), expected) > 100 * TOLERANCE


@pytest.mark.parametrize("name", ["gpt2", "llama tied", "qwen2"])
def test_an_output_layer_of_its_own_beside_tied_embeddings(name, tmp_path):
    """Transformers ties them where the file has one, or two that are the same."""
    folder, case = written(tmp_path, CASES[name]), CASES[name]
    if name == "gpt2":
        edit(folder, tie_word_embeddings=None)
    assert json.loads((folder / "config.json").read_text()).get("tie_word_embeddings", True)
    tied = attend.Model.load(folder)
    words = load_file(folder / "model.safetensors")["transformer.wte.weight" if name == "gpt2" else "model.embed_tokens.weight"]
    ids = np.arange(6, 30)
    for head in (words.clone(), words + 0.1 * torch.randn(words.shape, generator=torch.manual_seed(1))):
        put(folder, lm_head__weight=head)
        ours = attend.Model.load(folder)
        with torch.inference_mode():
            expected = opened(folder, case)[0](torch.from_numpy(ids)[None]).logits[0]
        assert far(ours.logits(ours.forward(ids)), expected) <= TOLERANCE
        assert ours.info.parameters == tied.info.parameters + (0 if torch.equal(head, words) else head.numel())
    put(folder, lm_head__weight=words[1:].clone())
    assert "'lm_head.weight' has shape [98,32]" in refusal(folder)


DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


@pytest.mark.parametrize("key", ["dtype", "torch_dtype"])
def test_the_dtype_is_the_configurations(key, tmp_path):
    """As Transformers has it; f16, which is widened here, is f32."""
    folder, case = written(tmp_path, CASES["llama"], torch.bfloat16), CASES["llama"]
    for name, dtype in DTYPES.items():
        edit(folder, dtype=None, torch_dtype=None)
        edit(folder, **{key: name})
        assert getattr(transformers, case.name).from_pretrained(folder).dtype == dtype
        assert attend.Model.load(folder).info.dtype == name.replace("float16", "float32").replace("bfloat32", "bfloat16")
        assert attend.Model.load(folder, dtype="float32").info.dtype == "float32"
    edit(folder, **{key: "float8_e4m3fn"})
    assert key in refusal(folder) and "float8_e4m3fn" in refusal(folder)


def test_a_matrix_of_another_dtype_does_not_make_the_model_its_own(tmp_path):
    folder, case = written(tmp_path, CASES["llama"]), CASES["llama"]
    key, ids = "model.layers.1.mlp.up_proj.weight", np.arange(6, 30)
    for dtype in (None, "float32"):
        put(folder, **{key: load_file(folder / "model.safetensors")[key].bfloat16()})
        edit(folder, dtype=dtype)
        ours = attend.Model.load(folder)
        assert ours.info.dtype == "float32"
        assert far(ours.forward(ids), hidden_of(opened(folder, case)[0], ids)) <= TOLERANCE
    tensors = load_file(folder / "model.safetensors")
    put(folder, **{name: each.bfloat16() for name, each in tensors.items() if each.dim() == 2})
    edit(folder, dtype=None)
    assert attend.Model.load(folder).info.dtype == "bfloat16"


def test_the_ids_that_end_a_text(tmp_path):
    """generation_config.json has them where there is one, else config.json, whatever the class's own are."""
    folder, case = written(tmp_path, CASES["llama"]), CASES["llama"]
    path = folder / "generation_config.json"
    for said in ({}, {"eos_token_id": 5}, {"eos_token_id": [5, 6]}):
        edit(folder, eos_token_id=None)
        edit(folder, **said)
        for text in (None, {}, {"eos_token_id": "null"}, {"eos_token_id": 7}):
            path.unlink(missing_ok=True)
            if text is not None:
                path.write_text(json.dumps(text).replace('"null"', "null"))
            expected = opened(folder, case)[0].generation_config.eos_token_id
            expected = [] if expected is None else expected if isinstance(expected, list) else [expected]
            assert attend.Model.load(folder).info.end == expected
    path.write_text("[7]")
    assert "generation_config.json': expected an object" in refusal(folder)


def test_names_and_buffers_of_older_pythias(tmp_path):
    folder, ids = written(tmp_path, CASES["gpt_neox old"]), np.arange(6, 30)
    expected = attend.Model.load(folder)
    put(folder, **{"gpt_neox.layers.0.attention." + name: each for name, each in {
        "bias": torch.ones(1, 1, 8, 8, dtype=torch.bool), "masked_bias": torch.tensor(-1e9), "rotary_emb.inv_freq": torch.ones(1)}.items()})
    put(folder, embed_out__weight=None, lm_head__weight=load_file(folder / "model.safetensors")["embed_out.weight"])
    ours = attend.Model.load(folder)
    np.testing.assert_array_equal(ours.logits(ours.forward(ids)), expected.logits(expected.forward(ids)))
    put(folder, embed_out__weight=torch.ones(99, 32))
    assert "'lm_head.weight' is not known" in refusal(folder)


@pytest.mark.parametrize("name, change, said", [
    ("gemma2", {"final_logit_softcapping": 30}, "final_logit_softcapping: expected a number with a decimal point"),
    ("gemma3", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping"),
    ("gemma2", {"use_bidirectional_attention": True}, "use_bidirectional_attention"),
    ("gpt_neox old", {"rotary_pct": 0.1}, "rotary_pct: 0.1 of heads of 8 numbers can't be rotated in pairs"),
    ("llama", {"is_causal": False}, "is_causal"),
    ("gpt2", {"is_causal": "null"}, "is_causal"),
    ("gpt2", {"num_attention_heads": 2}, "another name for n_head"),
    ("gpt2", {"layer_norm_epsilon": -1.0}, "layer_norm_epsilon: expected a number from 0 on"),
    ("llama", {"rms_norm_eps": "null"}, "rms_norm_eps: is null"),
    ("llama", {"rope_parameters": {"rope_theta": 0.0}}, "rope_parameters: rope_theta: expected a number above 0"),
    ("linear", {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": -2.0}}, "factor: expected a number above 0"),
    ("qwen2", {"rope_parameters": {"full_attention": {"rope_theta": 1e4}}}, "full_attention"),
    ("qwen2", {"layer_types": ["sliding_attention"] * 3}, "there is no sliding_window"),
    ("mistral", {"num_key_value_heads": "null"}, "num_key_value_heads: is null"),
    ("bert", {"text_config": {"hidden_size": 16}}, "text_config"),
    ("bert", {"per_layer_config": {"0": {"intermediate_size": 8}}}, "per_layer_config"),
])
def test_the_file_and_the_key_are_named(name, change, said, tmp_path):
    folder = written(tmp_path, CASES[name])
    edit(folder, **change)
    assert "config.json" in refusal(folder) and said in refusal(folder)


def test_an_other_name_alone_is_read(tmp_path):
    folder, ids = written(tmp_path, CASES["gpt2"]), np.arange(6, 30)
    expected = attend.Model.load(folder).forward(ids)
    edit(folder, n_head=None, num_attention_heads=4, n_embd=None, hidden_size=32, n_positions=None, max_position_embeddings=128)
    np.testing.assert_array_equal(attend.Model.load(folder).forward(ids), expected)


def test_the_older_key_of_rotary_positions_goes_first(tmp_path):
    folder, case, ids = written(tmp_path, CASES["llama3"]), CASES["llama3"], np.arange(6, 46)
    edit(folder, rope_scaling={"rope_type": "linear", "factor": 4.0}, rope_theta=5e3)
    assert far(attend.Model.load(folder).forward(ids), hidden_of(opened(folder, case)[0], ids)) <= TOLERANCE
