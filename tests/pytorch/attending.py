"""Transformers' models looked into: their attention in plain tensors, which a test can change, and what modules give."""

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


def array(x):
    return x.detach().double().numpy()


class Seen:
    """What modules were given and gave in one pass, by module."""

    def __init__(self, model, ids, **keywords):
        self.given, self.gave = {}, {}
        hooks = [module.register_forward_hook(self.keep) for module in model.modules()]
        with torch.no_grad():
            model(torch.from_numpy(ids)[None], **keywords)
        for hook in hooks:
            hook.remove()

    def keep(self, module, given, gave):
        gave = gave[0] if isinstance(gave, tuple) else gave
        for x, kept in ((given[0] if given else None, self.given), (gave, self.gave)):
            if isinstance(x, torch.Tensor) and x.dim() in (2, 3):  # OPT's MLP has rows alone
                kept[module] = array(x.flatten(0, -2))


class Layer:
    """The modules of one layer, whatever it calls them. at(kind, head): the projection's module, and the head's columns of it."""

    def __init__(self, of, size, groups):
        own = getattr(of, "self_attn", None) or getattr(of, "attn", None) or of.attention
        self.fused = getattr(own, "c_attn", None) or getattr(own, "query_key_value", None)
        self.neox, self.size, self.groups = hasattr(own, "query_key_value"), size, groups
        self.projections = [self.fused] * 3 if self.fused else [own.q_proj, own.k_proj, own.v_proj]
        self.out = next(getattr(own, name) for name in ("o_proj", "out_proj", "c_proj", "dense") if hasattr(own, name))
        weight = self.out.weight.detach()
        self.out_weight = weight.T if type(self.out).__name__ == "Conv1D" else weight
        self.mlp = of.fc1 if hasattr(of, "fc1") else of.mlp
        sandwich = hasattr(of, "post_feedforward_layernorm")
        olmo = sandwich and not hasattr(of, "pre_feedforward_layernorm")
        names = {"self_attn_layer_norm": "final_layer_norm", "ln_1": "ln_2",
                 "input_layernorm": "pre_feedforward_layernorm" if sandwich else "post_attention_layernorm"}
        first = next((name for name in names if hasattr(of, name)), None)
        self.reads = None if olmo else getattr(of, first)
        self.mlp_reads = None if olmo else getattr(of, names[first])
        self.written = of.post_attention_layernorm if sandwich else self.out  # what is added to the stream
        self.mlp_written = of.post_feedforward_layernorm if sandwich else of.fc2 if hasattr(of, "fc2") else of.mlp
        self.norm = self.written if sandwich else None

    def at(self, kind, head):
        n, D = "qkv".index(kind), self.size
        fused = n * self.fused.weight.shape[1] // 3 if self.fused else 0
        start = (3 * head + n) * D if self.neox else head * D + fused
        return self.projections[n], slice(start, start + D)

    def heads(self, z, written):
        """What each head wrote [H,N,E], of z [N,H*D] and what the output projection gave before its norm."""
        parts = [z[:, h * self.size:(h + 1) * self.size] @ self.out_weight[:, h * self.size:(h + 1) * self.size].T
                 for h in range(z.shape[1] // self.size)]
        if self.norm is not None and self.out.bias is not None:  # each has its share
            parts = [part + self.out.bias.detach() / len(parts) for part in parts]
        if self.norm is None:
            return parts
        weight = 1 + self.norm.weight if "Gemma" in type(self.norm).__name__ else self.norm.weight
        eps = self.norm.eps if hasattr(self.norm, "eps") else self.norm.variance_epsilon
        divisor = (written.pow(2).mean(-1, keepdim=True) + eps).sqrt()
        return [part / divisor * weight.detach() for part in parts]
