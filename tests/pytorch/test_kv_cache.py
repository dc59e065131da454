"""KvCache in Python."""

import numpy
import pytest
import torch

import attend


def normal(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)))


def test_decoding_with_a_cache_is_attention_over_all_keys():
    q, k, v = normal(2, 4, 300, 16), normal(2, 2, 300, 16), normal(2, 2, 300, 8)
    cache = attend.KvCache(2, 2, 16, 8)
    cache.append(k[:, :, :290], v[:, :, :290])
    for position in range(290, 300):
        cache.append(k[:, :, position:position + 1], v[:, :, position:position + 1])
        out, lse = cache.attention(q[:, :, position:position + 1], causal=True, return_lse=True)
        whole = attend.attention(q[:, :, position:position + 1], k[:, :, :position + 1], v[:, :, :position + 1],
                                 causal=True, offset="bottom_right", return_lse=True)
        assert torch.equal(out, whole[0]) and torch.equal(lse, whole[1])
    assert len(cache) == 300 and torch.equal(cache.keys(), k) and torch.equal(cache.values(), v)
    alibi = cache.attention(q[:, :, -3:], alibi_slopes=torch.ones(4), window=(5, 0))
    assert torch.equal(alibi, attend.attention(q[:, :, -3:], k, v, alibi_slopes=torch.ones(4), window=(5, 0),
                                               offset="bottom_right"))


def test_a_fork_does_not_see_what_comes_later():
    k = normal(1, 1, 20, 4)
    cache = attend.KvCache(1, 1, 4, 4)
    cache.append(k, k)
    fork = cache.fork(10)
    cache.truncate(5)
    cache.append(-k, -k)
    fork.append(k[:, :, :1], k[:, :, :1])
    assert (len(cache), len(fork)) == (25, 11)
    assert torch.equal(fork.keys(), torch.cat([k[:, :, :10], k[:, :, :1]], 2))
    assert torch.equal(cache.keys(), torch.cat([k[:, :, :5], -k], 2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_arrays_come_back_as_they_went_in(dtype):
    k = normal(1, 2, 3, 4).to(dtype)
    cache = attend.KvCache(1, 2, 4, 4, dtype=dtype)
    cache.append(k, k)
    assert cache.dtype == str(dtype).removeprefix("torch.") and torch.equal(cache.keys(), k)
    assert cache.attention(k).dtype == dtype
    if dtype != torch.bfloat16:
        numbers = attend.KvCache(1, 2, 4, 4, k.numpy().dtype)
        numbers.append(k.numpy(), k.numpy())
        assert isinstance(numbers.keys(), numpy.ndarray) and isinstance(numbers.attention(k.numpy()), numpy.ndarray)


def test_sequences_with_caches_of_their_own_in_one_call():
    lengths, k = (3, 700, 260), normal(1, 2, 700, 16)
    caches = [attend.KvCache(1, 2, 16, 16) for _ in lengths]
    for cache, length in zip(caches, lengths):
        cache.append(k[:, :, :length], k[:, :, :length])
    caches.append(caches[1].fork(512))
    q = normal(4, 4, 2, 16)
    out, lse = attend.attention(q, caches, causal=True, return_lse=True)
    for n, cache in enumerate(caches):
        alone = cache.attention(q[n:n + 1], causal=True, return_lse=True)
        assert torch.equal(out[n:n + 1], alone[0]) and torch.equal(lse[n:n + 1], alone[1])
    # PyTorch's way: padded to the longest, with a mask.
    visible = torch.arange(700) <= torch.tensor([*lengths, 512]).view(-1, 1, 1, 1) - 2 + torch.arange(2).view(-1, 1)
    padded = torch.nn.functional.scaled_dot_product_attention(q, k.expand(4, -1, -1, -1), k.expand(4, -1, -1, -1), visible,
                                                              enable_gqa=True)
    assert torch.allclose(out, padded, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_int8_keeps_each_row_by_its_largest_magnitude(dtype):
    k, v = normal(1, 2, 700, 16).to(dtype), normal(1, 2, 700, 8).to(dtype)
    cache = attend.KvCache(1, 2, 16, 8, dtype="int8")
    cache.append(k, v)
    assert cache.dtype == "int8" and cache.keys().dtype == torch.float32
    scales = k.float().abs().amax(-1, keepdim=True) / 127
    assert ((cache.keys() - k.float()).abs() <= 0.5001 * scales).all()
    assert torch.allclose((cache.keys() / scales).round() * scales, cache.keys(), rtol=1e-5)
    for Tq in 1, 30:  # decode and fused
        q = normal(1, 4, Tq, 16).to(dtype)
        out = cache.attention(q, causal=True)
        visible = torch.arange(700) <= torch.arange(Tq)[:, None] + 700 - Tq
        truth = torch.nn.functional.scaled_dot_product_attention(q.float(), cache.keys(), cache.values(), visible, enable_gqa=True)
        tolerance = {torch.float32: 2e-4, torch.bfloat16: 2e-2, torch.float16: 2e-3}[dtype]
        assert out.dtype == dtype and torch.allclose(out.float(), truth, rtol=0, atol=tolerance)
    eight = torch.zeros(1, 2, 3, 4, dtype=torch.int8)
    with pytest.raises(TypeError, match="k is int8, q is float32"):
        attend.attention(normal(1, 2, 3, 4), eight, eight)


def test_bad_caches_are_named():
    q, cache = normal(2, 2, 1, 4), attend.KvCache(1, 2, 4, 4)
    with pytest.raises(TypeError, match=r"attention: caches\[1\] is int, expected a KvCache"):
        attend.attention(q, [cache, 3])
    with pytest.raises(ValueError, match="attention: layout and out do not apply to caches"):
        attend.attention(q, [cache, cache], layout="bthd")
    with pytest.raises(ValueError, match=r"attention: caches\[1\] has batch size 2, expected 1"):
        attend.attention(q, [cache, attend.KvCache(2, 2, 4, 4)])
    with pytest.raises(TypeError, match="attention: v: expected an array"):
        attend.attention(q, q)


def test_it_drops_what_attention_drops():
    q, k = normal(1, 2, 9, 4), normal(1, 2, 300, 4)
    cache = attend.KvCache(1, 2, 4, 4)
    cache.append(k, k)
    assert torch.equal(cache.attention(q, dropout=(0.3, 5)), attend.attention(q, k, k, dropout=(0.3, 5)))
    assert not torch.equal(cache.attention(q, dropout=(0.3, 5)), cache.attention(q))


def test_bad_arguments_change_nothing():
    cache = attend.KvCache(1, 2, 4, 4)
    k = normal(1, 2, 3, 4)
    cache.append(k, k)
    with pytest.raises(ValueError, match=r"KvCache.append: k has shape \[1,2,3,3\], expected \[B,Hkv,T,D\] = \[1,2,T,4\]"):
        cache.append(k[..., :3], k)
    with pytest.raises(TypeError, match="KvCache.append: v: expected an array"):
        cache.append(k, None)
    with pytest.raises(ValueError, match="KvCache.truncate: length is 4, expected 0 to 3"):
        cache.truncate(4)
    with pytest.raises(TypeError, match="KvCache.attention: k is float32, q is float64"):
        cache.attention(k.double())
    with pytest.raises(TypeError, match="unexpected keyword argument 'layout'"):
        cache.attention(k, layout="bthd")
    with pytest.raises(ValueError, match="KvCache: batch 0, .* expected at least 1"):
        attend.KvCache(0, 2, 4, 4)
    with pytest.raises(TypeError, match="KvCache: dtype: expected float32, bfloat16, float16 or int8, got float64"):
        attend.KvCache(1, 2, 4, 4, "float64")
    assert len(cache) == 3 and torch.equal(cache.keys(), k)
