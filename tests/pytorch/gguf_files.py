"""GGUF files of the models of Transformers, as llama.cpp's converter makes them, in float32: converted() says what is in one, write()
writes it. Neither shares a line with what reads them.
"""

import struct

import numpy as np
import torch

LLAMA = {"embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output", "layers": "blk", "input_layernorm": "attn_norm",
         "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
         "self_attn.qkv_proj": "attn_qkv", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
         "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.gate_up_proj": "ffn_up",
         "mlp.down_proj": "ffn_down", "model.": ""}
GEMMA = LLAMA | {"post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
                 "post_feedforward_layernorm": "post_ffw_norm"}
GPT2 = {"wte": "token_embd", "wpe": "position_embd", "ln_f": "output_norm", "lm_head": "output", "transformer.": "", "h.": "blk.",
        "ln_1": "attn_norm", "ln_2": "ffn_norm", "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output", "mlp.c_fc": "ffn_up",
        "mlp.c_proj": "ffn_down"}
BERT = {"bert.": "", "distilbert.": "", "embeddings.word_embeddings": "token_embd", "embeddings.position_embeddings": "position_embd",
        "embeddings.token_type_embeddings": "token_types", "embeddings.LayerNorm": "token_embd_norm", "encoder.layer.": "blk.",
        "transformer.layer.": "blk.", "attention.self.query": "attn_q", "attention.self.key": "attn_k", "attention.self.value": "attn_v",
        "attention.output.dense": "attn_output", "attention.output.LayerNorm": "attn_output_norm", "intermediate.dense": "ffn_up",
        "output.dense": "ffn_down", "output.LayerNorm": "layer_output_norm", "attention.q_lin": "attn_q", "attention.k_lin": "attn_k",
        "attention.v_lin": "attn_v", "attention.out_lin": "attn_output", "sa_layer_norm": "attn_output_norm", "ffn.lin1": "ffn_up",
        "ffn.lin2": "ffn_down", "output_layer_norm": "layer_output_norm"}
MODERNBERT = {"embeddings.tok_embeddings": "token_embd", "embeddings.norm": "token_embd_norm", "final_norm": "output_norm",
              "layers.": "blk.", "attn_norm": "attn_norm", "attn.Wqkv": "attn_qkv", "attn.Wo": "attn_output", "mlp_norm": "ffn_norm",
              "mlp.Wi": "ffn_up", "mlp.Wo": "ffn_down"}
TOKENS = [f"{n}" for n in range(99)]  # of tiny_models


def renamed(name, names):
    for theirs, ours in names.items():
        name = name.replace(theirs, ours)
    return name


def in_pairs(rows, heads):
    """Llama's rows of q and k: the numbers of a pair follow each other."""
    return rows.view(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:]).transpose(1, 2).reshape(rows.shape)


def llama3_divisors(parameters, head_dim):
    """What becomes of the scaling."""
    divisors, length = [], parameters["original_max_position_embeddings"]
    low, high = parameters["low_freq_factor"], parameters["high_freq_factor"]
    for frequency in 1 / parameters["rope_theta"] ** (torch.arange(0, head_dim, 2).float() / head_dim):
        wavelength = 2 * np.pi / frequency
        share = ((length / wavelength - low) / (high - low)).clamp(0, 1)
        divisors.append(1 / ((1 - share) / parameters["factor"] + share))
    return torch.stack(divisors)


def sizes(config):
    return {"block_count": config.num_hidden_layers, "context_length": config.max_position_embeddings,
            "embedding_length": config.hidden_size, "attention.head_count": config.num_attention_heads}


def rotating(config):
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    parameters = config.rope_parameters.get("full_attention", config.rope_parameters)
    return sizes(config) | {
        "feed_forward_length": config.intermediate_size, "attention.head_count_kv": config.num_key_value_heads,
        "attention.key_length": head, "attention.value_length": head, "attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        "rope.freq_base": float(parameters["rope_theta"])}


def llama(config, state):
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    tensors = {}
    for name, tensor in state.items():
        of = next((heads[each] for each in heads if each in name), None)
        tensors[renamed(name, LLAMA)] = in_pairs(tensor, of) if of else tensor
    if config.rope_parameters["rope_type"] == "llama3":
        tensors["rope_freqs.weight"] = llama3_divisors(config.rope_parameters, config.head_dim)
    return "llama", rotating(config) | {"vocab_size": config.vocab_size}, tensors


def smollm3(config, state):
    _, values, tensors = llama(config, state)
    return "smollm3", values, tensors


def modernbert(config, state):
    parameters = config.rope_parameters
    values = sizes(config) | {
        "feed_forward_length": config.intermediate_size, "attention.layer_norm_epsilon": config.norm_eps, "attention.causal": False,
        "attention.sliding_window": config.local_attention, "attention.sliding_window_pattern": 3, "rope.scaling.type": "none",
        "rope.freq_base": float(parameters["full_attention"]["rope_theta"]),
        "rope.freq_base_swa": float(parameters["sliding_attention"]["rope_theta"])}
    return "modern-bert", values, {renamed(name, MODERNBERT): tensor for name, tensor in state.items()}


def qwen(config, state):
    return config.model_type, rotating(config), {renamed(name, LLAMA): tensor for name, tensor in state.items()}


def gemma(config, state):
    values = rotating(config) | {"attention.sliding_window": config.sliding_window}
    if config.model_type == "gemma2":
        values["attn_logit_softcapping"] = config.attn_logit_softcapping
    if config.final_logit_softcapping:
        values["final_logit_softcapping"] = config.final_logit_softcapping
    if config.model_type != "gemma2":
        full, sliding = config.rope_parameters["full_attention"], config.rope_parameters["sliding_attention"]
        values["rope.freq_base_swa"] = sliding["rope_theta"]
        if full["rope_type"] == "linear":
            values |= {"rope.scaling.type": "linear", "rope.scaling.factor": full["factor"]}
    tensors = {renamed(name, GEMMA): tensor + 1 if name.endswith("norm.weight") else tensor for name, tensor in state.items()}
    return "gemma2" if config.model_type == "gemma2" else "gemma3", values, tensors


def phi3(config, state):
    parameters = config.rope_parameters
    turned = int(parameters.get("partial_rotary_factor", 1.0) * config.hidden_size) // config.num_attention_heads
    original = parameters.get("original_max_position_embeddings", config.original_max_position_embeddings)
    values = rotating(config) | {"rope.dimension_count": turned, "rope.scaling.original_context_length": original,
                                 "attention.sliding_window": config.sliding_window or 0}
    tensors = {renamed(name, LLAMA): tensor for name, tensor in state.items()}
    if "long_factor" in parameters:
        scale = config.max_position_embeddings / original
        values["rope.scaling.attn_factor"] = float(np.sqrt(1 + np.log(scale) / np.log(original))) if scale > 1 else 1.0
        tensors |= {f"rope_factors_{length}.weight": torch.tensor(parameters[f"{length}_factor"]) for length in ("long", "short")}
    return "phi3", values, tensors


def gpt2(config, state):
    values = sizes(config) | {"feed_forward_length": 4 * config.n_embd, "attention.layer_norm_epsilon": config.layer_norm_epsilon}
    turned = ("c_attn.weight", "c_proj.weight", "c_fc.weight")
    return "gpt2", values, {renamed(name, GPT2): tensor.T if name.endswith(turned) else tensor for name, tensor in state.items()}


def bert(config, state):
    """RoBERTa's positions begin after its padding; the first rows of the table are left out."""
    offset = config.pad_token_id + 1 if config.model_type in ("roberta", "xlm-roberta", "camembert") else 0
    values = sizes(config) | {
        "context_length": config.max_position_embeddings - offset, "attention.causal": False,
        "feed_forward_length": config.hidden_dim if config.model_type == "distilbert" else config.intermediate_size,
        "attention.layer_norm_epsilon": getattr(config, "layer_norm_eps", 1e-12)}
    tensors = {renamed(name, BERT): tensor for name, tensor in state.items() if "pooler" not in name}
    tensors["position_embd.weight"] = tensors["position_embd.weight"][offset:]
    return "bert", values, tensors


KINDS = {"llama": llama, "mistral": llama, "qwen2": qwen, "qwen3": qwen, "gemma2": gemma, "gemma3_text": gemma, "phi3": phi3, "gpt2": gpt2,
         "smollm3": smollm3, "modernbert": modernbert,
         **dict.fromkeys(["bert", "roberta", "xlm-roberta", "camembert", "distilbert"], bert)}


def converted(model):
    """The values by key and the tensors by name."""
    state = {name: tensor for name, tensor in model.state_dict().items()
             if name != "lm_head.weight" or not model.config.tie_word_embeddings}
    architecture, values, tensors = KINDS[model.config.model_type](model.config, state)
    return {"general.architecture": architecture, "tokenizer.ggml.tokens": TOKENS} | {
        f"{architecture}.{key}": value for key, value in values.items()}, tensors


def text(of):
    return struct.pack("<Q", len(of.encode())) + of.encode()


def value(of):
    """With its type."""
    if isinstance(of, list):
        return struct.pack("<IIQ", 9, 8, len(of)) + b"".join(map(text, of))
    for kind, number, form in ((bool, 7, "<?"), (int, 4, "<I"), (float, 6, "<f")):
        if isinstance(of, kind):
            return struct.pack("<I", number) + struct.pack(form, of)
    return struct.pack("<I", 8) + text(of)


def write(path, values, tensors, kinds=None):
    """kinds: the numbers of the types of tensors that are blocks, bytes [rows,bytes of a row], and how many numbers a row has."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(values))
    head += b"".join(text(key) + value(of) for key, of in values.items())
    data = b""
    for name, tensor in tensors.items():
        kind, columns = (kinds or {}).get(name, (0, tensor.shape[-1]))
        head += text(name) + struct.pack(f"<I{tensor.dim()}QIQ", tensor.dim(), columns, *reversed(tensor.shape[:-1]), kind, len(data))
        data += tensor.contiguous().numpy().tobytes()
        data += bytes(-len(data) % 32)
    path.write_bytes(head + bytes(-len(head) % 32) + data)
