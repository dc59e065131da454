"""Attention for Transformers' models in plain tensors, which a test can look into and change."""

import torch
import transformers


def attended(query, key, value, mask, scaling, extra=None):
    """softmax(query key^T scaling + mask + extra) value, [1,H,Tq,D], and the weights; grouped heads share keys."""
    groups = query.shape[1] // key.shape[1]
    key, value = (x.repeat_interleave(groups, 1) for x in (key, value))
    scores = query @ key.transpose(2, 3) * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    for added in (mask, extra):
        scores = scores if added is None else scores + added
    weights = torch.softmax(scores, -1)
    return weights @ value, weights


def attends(model, name, attention):
    """The model with attention(module, query, key, value, mask, scaling) -> (z [1,H,Tq,D], weights) in place of its own."""
    def called(module, query, key, value, attention_mask, scaling=None, **_):
        z, weights = attention(module, query, key, value, attention_mask, scaling)
        return z.transpose(1, 2).contiguous(), weights

    transformers.AttentionInterface.register(name, called)
    transformers.AttentionMaskInterface.register(name, transformers.masking_utils.eager_mask)
    model.set_attn_implementation(name)
    return model
