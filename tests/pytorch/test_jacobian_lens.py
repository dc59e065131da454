"""attend.JacobianLens beside torch.autograd.functional.jacobian through Transformers' own layers, in float64."""

import numpy as np
import pytest
import torch
from tiny_models import opener

LENGTH, SKIP = 9, 3
NAMES = ["llama", "qwen3", "olmo2", "gemma2 bias, caps", "mistral window", "gpt2", "gpt_neox", "opt as 350m", "opt projected, gelu"]


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    return opener(tmp_path_factory)


def layers_of(model):
    base = model.base_model
    base = getattr(base, "decoder", base)
    return next(getattr(base, name) for name in ("layers", "h") if hasattr(base, name))


def between(model, ids, layer):
    """The whole derivative [N,E,N,E] of what the last layer gives by what `layer` gives."""
    blocks = layers_of(model)

    def last_of(x=None):
        seen = {}

        def take(module, inputs, output):
            first = output[0] if isinstance(output, tuple) else output
            if module is blocks[layer]:
                seen["layer"] = first
                if x is not None:
                    first = x[None]
            if module is blocks[-1]:
                seen["last"] = first[0]
            return (first, *output[1:]) if isinstance(output, tuple) else first

        hooks = [block.register_forward_hook(take) for block in blocks]
        model(torch.from_numpy(ids)[None])
        for hook in hooks:
            hook.remove()
        return seen

    start = last_of()["layer"][0].detach()
    return torch.autograd.functional.jacobian(lambda x: last_of(x)["last"], start).numpy()


@pytest.mark.parametrize("name", NAMES)
def test_beside_the_whole_derivative(both, name):
    pair = both(name)
    ids, _ = pair.ids(LENGTH)
    theirs = pair.theirs.double().eval()
    found = pair.ours.jacobian_lens(ids, skip=SKIP, block=5)
    assert found.prompts == 1 and found.jacobians.shape[0] == len(layers_of(theirs)) - 1
    kept = range(SKIP, LENGTH - 1)
    for layer, ours in enumerate(found.jacobians):
        whole = between(theirs, ids, layer)
        expected = sum(whole[later, :, row, :] for row in kept for later in kept if later >= row) / len(kept)
        assert np.abs(ours - expected).max() < 2e-5 * np.abs(expected).max()
        assert np.abs(expected - np.eye(len(expected))).max() > 0.01  # the logit lens has the identity
    assert np.array_equal(pair.ours.jacobian_lens(ids, skip=SKIP, block=1000).jacobians, found.jacobians)


def test_means_files_and_several_prompts(both, tmp_path):
    import attend
    model = both("llama").ours
    draw = np.random.default_rng(2)
    prompts = [draw.integers(5, 90, count) for count in (7, 9, 12)]
    each = [model.jacobian_lens(ids, skip=SKIP) for ids in prompts]
    told = []
    together = model.jacobian_lens(prompts, skip=SKIP, progress=told.append)
    assert together.prompts == 3 and told[-1] == 1 and told == sorted(told)
    np.testing.assert_allclose(together.jacobians, np.mean([one.jacobians for one in each], 0), atol=1e-6)
    merged = each[0].merge(each[1].merge(each[2]))  # as two machines would
    assert merged.prompts == 3
    np.testing.assert_allclose(merged.jacobians, together.jacobians, atol=1e-6)
    together.save(tmp_path / "x.safetensors")
    loaded = attend.JacobianLens.load(tmp_path / "x.safetensors")
    assert loaded.prompts == 3 and np.array_equal(loaded.jacobians, together.jacobians)
    together.to_torch(tmp_path / "x.pt")
    theirs = torch.load(tmp_path / "x.pt", weights_only=True)
    assert (theirs["n_prompts"], theirs["source_layers"], theirs["d_model"]) == (3, [0, 1], together.jacobians.shape[-1])
    back = attend.JacobianLens.from_torch(tmp_path / "x.pt")
    assert back.prompts == 3 and np.array_equal(back.jacobians, together.jacobians.astype(np.float16).astype(np.float32))
    goes_on = model.jacobian_lens(prompts[0], skip=SKIP).merge(loaded)
    assert goes_on.prompts == 4


@pytest.mark.parametrize("name", ["llama", "opt projected, gelu", "gemma2 bias, caps"])
def test_what_the_lens_reads(both, name):
    """The model's own norm, output layer and softcap on J of the stream."""
    pair = both(name)
    ids, _ = pair.ids(LENGTH)
    jacobian = pair.ours.jacobian_lens(ids, skip=SKIP)
    plain, found = pair.ours.lens(ids, [2, 7], top=3), pair.ours.lens(ids, [2, 7], top=3, jacobian=jacobian)
    L = len(jacobian.jacobians) + 1
    assert np.array_equal(found.ids[[0, L]], plain.ids[[0, L]]), "the embedding and the last layer are as they are"
    theirs = pair.theirs.double().eval()
    blocks, streams = layers_of(theirs), {}
    hooks = [block.register_forward_hook(lambda module, inputs, output, n=n: streams.update(
        {n: (output[0] if isinstance(output, tuple) else output)[0]})) for n, block in enumerate(blocks)]
    with torch.no_grad():
        theirs(torch.from_numpy(ids)[None])
    for hook in hooks:
        hook.remove()
    for layer in range(L - 1):
        rows = streams[layer][[2, 7]] @ torch.from_numpy(np.float64(jacobian.jacobians[layer])).T
        # The last layer gives these rows, and the model goes on from them.
        hook = blocks[-1].register_forward_hook(lambda module, inputs, output, rows=rows: (
            (rows[None], *output[1:]) if isinstance(output, tuple) else rows[None]))
        with torch.no_grad():
            logits = theirs(torch.from_numpy(ids[:2])[None]).logits[0]
        hook.remove()
        likely = torch.log_softmax(logits, -1).topk(3)
        np.testing.assert_allclose(found.log_probabilities[layer + 1], likely.values.numpy(), atol=1e-4)
    several = pair.ours.lens([ids, ids[:5]], top=3, jacobian=jacobian)
    assert np.array_equal(several[0].ids[:, [2, 7]], found.ids)


def test_what_is_refused(both, tmp_path):
    import attend
    llama, gpt2 = both("llama").ours, both("gpt2").ours
    found = llama.jacobian_lens([5, 6, 7, 8], skip=1)
    for call, words in (
            (lambda: llama.jacobian_lens([5, 6, 7]), "3 ids, expected at least 18"),
            (lambda: llama.jacobian_lens([5, 6, 7], skip=-1), "skip is -1"),
            (lambda: llama.jacobian_lens([5, 6, 7], skip=0, block=0), "block is 0"),
            (lambda: both("bert").ours.jacobian_lens([5, 6, 7], skip=0), "expected a decoder"),
            (lambda: gpt2.lens([5, 6, 7], jacobian=attend.JacobianLens(np.eye(4)[None].repeat(2, 0), 1)), r"with shape \[4,4\]"),
            (lambda: gpt2.lens([5, 6, 7], jacobian=attend.JacobianLens(np.eye(4)[None], 1)), "has 1 layers, expected 2"),
            (lambda: found.merge(attend.JacobianLens(np.eye(4)[None], 1)), "the two lenses belong to different models"),
            (lambda: attend.JacobianLens(np.eye(4)[None], 0), "prompts is 0"),
            (lambda: attend.JacobianLens(np.eye(4), 1), "jacobians"),
    ):
        with pytest.raises((ValueError, TypeError), match=words):
            call()
    torch.save({"J": {1: torch.eye(4)}}, tmp_path / "x.pt")
    with pytest.raises(ValueError, match="no J of the layers 0, 1"):
        attend.JacobianLens.from_torch(tmp_path / "x.pt")
    (tmp_path / "x.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    with pytest.raises(OSError, match="it is not a Jacobian lens"):
        attend.JacobianLens.load(tmp_path / "x.safetensors")
