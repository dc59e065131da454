"""attribute(), lens(), ablate(), patch(), edges(), circuit() and Jacobian lenses beside TransformerLens: a second witness.

On GPT-2's and Llama's random configurations.

.ci/long installs it (tests/requirements-lens.txt).
"""

import os

import numpy as np
import pytest
import tokenizers
import torch

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported

pytest.importorskip("transformer_lens", reason="no TransformerLens: .ci/long installs it")

import transformers
from tiny_models import opener
from transformer_lens import patching
from transformer_lens.model_bridge import TransformerBridge
from transformer_lens.tools.analysis.attribution_patching import EdgeAttributionConfig, attribution_patch, faithfulness
from transformer_lens.tools.analysis.jacobian_lens import JacobianLens

IDS, CORRUPT = [5, 17, 23, 5, 17, 60, 31, 8], [5, 17, 44, 5, 17, 60, 31, 8]
TOKEN, AGAINST = 7, 12


class Both:
    """A model opened by attend and by TransformerLens, and what that one saw of IDS."""

    def __init__(self, pair):
        self.ours, self.info = pair.ours, pair.ours.info
        words = tokenizers.Tokenizer(tokenizers.models.WordLevel({str(n): n for n in range(99)}, "0"))  # it asks for one
        self.bridge = TransformerBridge.boot_transformers(
            str(pair.folder), hf_model=pair.theirs, device="cpu",
            tokenizer=transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="0", eos_token="1"))
        with torch.inference_mode():
            self.logits, self.cache = self.bridge.run_with_cache(torch.tensor([IDS]))

    def of(self, layer, name):
        return self.cache[f"blocks.{layer}.{name}"][0].double()

    def direction(self):
        """By what a part of the last row's stream is read as the difference of the two logits, the norm's divisor held."""
        norm = self.bridge.ln_final
        read = norm.weight.double() * (self.bridge.W_U[:, TOKEN] - self.bridge.W_U[:, AGAINST]).double()
        stream = self.of(self.info.layers - 1, "hook_resid_post")[-1]
        if getattr(norm, "bias", None) is not None:  # LayerNorm takes the mean out
            stream, read = stream - stream.mean(), read - read.mean()
        return read / torch.sqrt(stream.square().mean() + self.ours_eps())

    def ours_eps(self):
        config = self.bridge.original_model.config
        return getattr(config, "rms_norm_eps", None) or config.layer_norm_epsilon


@pytest.fixture(scope="module", params=["gpt2", "llama"])
def both(request, tmp_path_factory):
    return Both(opener(tmp_path_factory)(request.param))


def difference(logits):
    return (logits[0, -1, TOKEN] - logits[0, -1, AGAINST]).double()


def near(got, expected, of=None):
    assert np.abs(got - expected).max() <= 2e-5 * max(np.abs(expected).max(), of or 0)


@torch.inference_mode()
def test_attribution(both):
    found, read = both.ours.attribute(IDS, TOKEN, AGAINST), both.direction()
    group = both.info.heads // both.info.kv_heads
    for layer in range(both.info.layers):
        values = both.of(layer, "attn.hook_v")  # [T,Hkv,Dv]
        weights = both.of(layer, "attn.hook_pattern")[:, -1]  # [H,T]
        written = torch.einsum("jhd,hde->hje", values.repeat_interleave(group, 1), both.bridge.W_O[layer].double())
        heads = (weights[..., None] * written) @ read
        near(found.heads[layer], heads.numpy(), of=np.abs(found.heads).max())
        near(found.mlps[layer], (both.of(layer, "hook_mlp_out")[-1] @ read).item(), of=np.abs(found.mlps).max())
    near(found.logit, difference(both.logits).item())


@torch.inference_mode()
def test_lens(both):
    found = both.ours.lens(IDS, top=3)
    for layer in range(both.info.layers + 1):
        stream = both.cache["blocks.0.hook_resid_pre"] if layer == 0 else both.cache[f"blocks.{layer - 1}.hook_resid_post"]
        expected = both.bridge.unembed(both.bridge.ln_final(stream))[0].double().log_softmax(-1)
        near(found.log_probabilities[layer], expected.topk(3).values.numpy())
        assert found.ids[layer].tolist() == expected.topk(3).indices.tolist()


@torch.inference_mode()
def test_ablation(both):
    found = both.ours.ablate(IDS, token=TOKEN, against=AGAINST)
    before = difference(both.logits)
    for layer in range(both.info.layers):
        for head in range(both.info.heads):
            def without(z, hook, head=head):
                z[..., head, :] = 0
                return z
            after = difference(both.bridge.run_with_hooks(torch.tensor([IDS]), fwd_hooks=[(f"blocks.{layer}.attn.hook_z", without)]))
            near(found.logit[layer, head], (after - before).item(), of=np.abs(found.logit).max())


@torch.inference_mode()
def test_patching(both):
    corrupt = torch.tensor([CORRUPT])
    clean, spoilt = difference(both.logits), difference(both.bridge(corrupt))

    def recovered(logits):
        return (difference(logits) - spoilt) / (clean - spoilt)

    heads = both.ours.patch(IDS, CORRUPT, TOKEN, AGAINST)
    near(heads.recovered, patching.get_act_patch_attn_head_out_all_pos(both.bridge, corrupt, both.cache, recovered).numpy(), of=1)
    streams = both.ours.patch(IDS, CORRUPT, TOKEN, AGAINST, what="residual")
    near(streams.recovered[:-1], patching.get_act_patch_resid_pre(both.bridge, corrupt, both.cache, recovered).numpy(), of=1)


def name_of(node):
    """Our name of theirs, which has a position besides."""
    if node.kind in ("embed", "logits"):
        return {"embed": "embedding", "logits": "output"}[node.kind]
    if node.head is None:
        return f"mlp {node.layer}"
    return f"{node.layer}.{node.head}" + (f" {node.kind[0]}" if node.kind.endswith("_input") else "")


def test_edges_and_faithfulness(both):
    """Theirs are of a position each, ours of all. They take no heads that share keys."""
    if both.info.kv_heads != both.info.heads:
        with pytest.raises(ValueError, match="GQA"):
            attribution_patch(both.bridge, torch.tensor([IDS]), torch.tensor([CORRUPT]), difference, EdgeAttributionConfig("edge"))
        return
    texts = torch.tensor([IDS]), torch.tensor([CORRUPT])
    theirs = attribution_patch(both.bridge, *texts, difference, EdgeAttributionConfig("edge")).edge_scores
    sums = {}
    for (writer, reader), score in theirs.items():
        edge = name_of(writer), name_of(reader)
        sums[edge] = sums.get(edge, 0) + score
    found = both.ours.edges(IDS, CORRUPT, TOKEN, AGAINST)
    largest = max(map(abs, sums.values()))
    for (writer, reader), score in sums.items():
        ours = found.scores[found.sources.index(writer), found.receivers.index(reader)]
        assert ours == pytest.approx(score, rel=0, abs=2e-5 * largest), (writer, reader)
    draw = np.random.default_rng(4)
    for share in (0.3, 0.7):
        kept = [edge for edge in sums if draw.random() < share]
        own = [edge for edge in theirs if (name_of(edge[0]), name_of(edge[1])) in set(kept)]
        expected = faithfulness(both.bridge, *texts, difference, own)
        near(both.ours.circuit(found, only=kept).faithfulness, expected.recovered, of=1)


def test_jacobian_lens(both, tmp_path):
    """Their fit of the same prompt, their file, and what they read with it."""
    import attend
    prompt = " ".join(str(3 + 7 * n % 90) for n in range(12))
    ids = both.bridge.to_tokens(prompt)
    theirs = JacobianLens.fit(both.bridge, [prompt], corpus="the test's own", skip_first_positions=3, show_progress=False)
    ours = both.ours.jacobian_lens(ids[0].tolist(), skip=3)
    assert theirs.source_layers == list(range(len(ours.jacobians)))
    for layer, expected in theirs.jacobians.items():
        near(ours.jacobians[layer], expected.numpy())
    theirs.save(str(tmp_path / "theirs.pt"), dtype=torch.float32)
    taken = attend.JacobianLens.from_torch(tmp_path / "theirs.pt")
    assert taken.prompts == 1 and np.array_equal(taken.jacobians, np.stack([x.numpy() for x in theirs.jacobians.values()]))
    ours.to_torch(tmp_path / "ours.pt")
    given = JacobianLens.load(str(tmp_path / "ours.pt"))
    assert given.n_prompts == 1 and given.d_model == both.info.embedding_size
    near(np.stack([x.numpy() for x in given.jacobians.values()]), ours.jacobians.astype(np.float16))
    with torch.inference_mode():
        read = theirs.readout(both.bridge, torch.tensor([IDS]), top_k=3, return_full_logits=True)
    found = both.ours.lens(IDS, top=3, jacobian=taken)
    for layer in theirs.source_layers:
        near(found.log_probabilities[layer + 1], read.lens_logits[layer].double().log_softmax(-1).topk(3).values.numpy())
