#!/usr/bin/env python3
"""Times attend.Model on quantised GGUF files beside llama.cpp: the same file, ids and threads, in turns.

Usage: benchmarks/quantized.py FILE.gguf... [--also float32 bfloat16 fast int8] [--native] [--rounds 5] [--threads N]
                                [--random DIR [--kinds KIND...]]
README.md says what is timed. --random DIR writes models with random blocks there, where they are not yet, and times them too: a Llama of
width 2,048 in Q4_K_M, or those that --kinds names. Each implementation is a process of its own; llama.cpp is PyPI's xllamacpp
(requirements-quantized.txt) and with --native one that is compiled for this machine, of requirements-native.txt: at the first call, in
some 10 minutes, below ~/.cache/attend/peers. It prints a Markdown table.
"""
import argparse
import concurrent.futures
import ctypes
import multiprocessing
import os
import pathlib
import statistics
import subprocess
import sys
import time

import numpy as np

from worker import Worker, wait_until_idle

CONTEXT = 2048  # tokens of a sequence, at most
NEW = 32


# ---- Who is measured ----

class Attend:
    """Whatever dtype the file has, computed in another, or with rounded activations."""
    name = "attend"

    def __init__(self, path, threads, slots, setting):
        import attend
        attend.set_num_threads(threads)
        rounds = setting in ("fast", "int8")
        self.model = attend.Model.load(path, activations=setting) if rounds else attend.Model.load(path, dtype=setting)

    def generate(self, ids, count):
        """ids, seconds to the first one, and from there to the last."""
        told = []
        begin = time.perf_counter()
        made = self.model.generate(ids, count, end=[], on_token=lambda id: told.append(time.perf_counter()))
        return made.tolist(), told[0] - begin, told[-1] - told[0]

    def several(self, prompts, count):
        return [each.tolist() for each in self.model.generate(prompts, count, end=[])]


class XLlamaCpp:
    """llama.cpp's own server, called in its process; its own clock: reading the prompt and its first token, and the tokens after that."""
    name = "xllamacpp"

    def __init__(self, path, threads, slots, _):
        import xllamacpp
        params = xllamacpp.CommonParams()
        params.model.path = str(path)
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
        params.n_parallel, params.n_ctx = slots, slots * CONTEXT
        params.warmup = False
        params.verbosity = 0
        self.server = xllamacpp.Server(params)

    def ask(self, ids, count):
        # top_k 1 is the cheapest of its samplers that gives the likeliest token.
        answer = self.server.handle_completions({
            "prompt": [int(id) for id in ids], "n_predict": count, "samplers": ["top_k"], "top_k": 1, "cache_prompt": False,
            "ignore_eos": True, "return_tokens": True, "verbose": True})
        if "__verbose" not in answer:
            raise RuntimeError(str(answer)[:300])
        return answer["__verbose"]

    def generate(self, ids, count):
        answer = self.ask(ids, count)
        times = answer["timings"]
        assert (times["prompt_n"], times["predicted_n"]) == (len(ids), count), times
        return answer["tokens"], times["prompt_ms"] / 1e3, times["predicted_ms"] / 1e3

    def several(self, prompts, count):
        with concurrent.futures.ThreadPoolExecutor(len(prompts)) as pool:
            return [each["tokens"] for each in pool.map(lambda ids: self.ask(ids, count), prompts)]


class NativeLlamaCpp:
    """llama.cpp as llama-cpp-python has it, compiled for this machine: its own functions, and NumPy's choice of the likeliest token."""
    name = "llama_cpp"

    def __init__(self, path, threads, slots, packages):
        import llama_cpp
        self.lib = llama_cpp
        # It says what it loads.
        self.quiet = llama_cpp.llama_log_callback(lambda level, text, data: None)
        llama_cpp.llama_log_set(self.quiet, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        self.model = llama_cpp.llama_model_load_from_file(str(path).encode(), llama_cpp.llama_model_default_params())
        params = llama_cpp.llama_context_default_params()
        params.n_ctx, params.n_seq_max, params.n_threads, params.n_threads_batch = slots * CONTEXT, slots, threads, threads
        self.context = llama_cpp.llama_init_from_model(self.model, params)
        self.words = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))
        self.batch = llama_cpp.llama_batch_init(CONTEXT, 0, 1)

    def decode(self, rows):
        """rows: (id, position, sequence, whether its logits are asked for). The likeliest token of each that asks."""
        batch = self.batch
        batch.n_tokens = len(rows)
        for n, (id, position, sequence, asks) in enumerate(rows):
            batch.token[n], batch.pos[n], batch.n_seq_id[n], batch.logits[n] = id, position, 1, asks
            batch.seq_id[n][0] = sequence
        if self.lib.llama_decode(self.context, batch) != 0:
            raise RuntimeError("llama_decode")
        return [int(np.ctypeslib.as_array(self.lib.llama_get_logits_ith(self.context, n), (self.words,)).argmax())
                for n, row in enumerate(rows) if row[3]]

    def several(self, prompts, count):
        self.lib.llama_memory_clear(self.lib.llama_get_memory(self.context), True)
        rows = [(int(id), n, sequence, n == len(ids) - 1) for sequence, ids in enumerate(prompts) for n, id in enumerate(ids)]
        made = [[id] for id in self.decode(rows)]
        self.began = time.perf_counter()
        for step in range(1, count):
            found = self.decode([(ids[-1], len(prompt) + step - 1, n, True) for n, (prompt, ids) in enumerate(zip(prompts, made))])
            for ids, id in zip(made, found):
                ids.append(id)
        return made

    def generate(self, ids, count):
        begin = time.perf_counter()
        [made] = self.several([ids], count)
        return made, self.began - begin, time.perf_counter() - self.began


def native_packages():
    """Where requirements-native.txt is installed, compiled at the first call."""
    listed = pathlib.Path(__file__).parent / "requirements-native.txt"
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    folder = cache / "attend" / "peers" / listed.read_text().splitlines()[-1].replace("==", "-")
    if not (folder / "compiled").exists():
        print(f"compiling {folder.name} in {folder}, once: some 10 minutes", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--upgrade", "--target", folder,
                        "-r", listed], check=True, env=os.environ | {"CMAKE_ARGS": "-DGGML_NATIVE=ON -DLLAVA_BUILD=OFF"},
                       preexec_fn=lambda: os.nice(19))
        (folder / "compiled").touch()
    return str(folder)


# ---- A process of each ----

def anonymous_memory():
    line = next(line for line in pathlib.Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon"))
    return int(line.split()[1]) * 1024


def first_call(kind, *arguments):
    """Seconds from a process that has imported it to its first token, and the anonymous memory that this takes."""
    before, begin = anonymous_memory(), time.perf_counter()
    model = kind(*arguments)
    model.generate(list(range(10, 18)), 1)
    return model, {"opening": time.perf_counter() - begin, "memory": anonymous_memory() - before}


def serve(pipe, kind, *arguments):
    try:
        if kind is NativeLlamaCpp:
            sys.path.append(arguments[-1])
        __import__(kind.name)
        model, facts = first_call(kind, *arguments)
    except Exception as error:  # whatever it is, the others are measured
        pipe.send(repr(error)[:300])
        return
    pipe.send(facts)
    while (asked := pipe.recv()) is not None:
        what, *given = asked
        begin = time.perf_counter()
        made = getattr(model, what)(*given)
        pipe.send((made, time.perf_counter() - begin))


class Served:
    def __init__(self, name, kind, *arguments):
        self.name, self.kind, self.arguments = name, kind, arguments
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, kind, *arguments), daemon=True)
        self.process.start()
        theirs.close()
        self.facts = self.pipe.recv()
        if not isinstance(self.facts, dict):
            raise RuntimeError(self.facts)

    def ask(self, *what):
        self.pipe.send(what)
        return self.pipe.recv()

    def close(self):
        self.pipe.send(None)
        self.process.join()

    def cpu_seconds(self):
        """As Worker's, for wait_until_idle()."""
        tasks = pathlib.Path(f"/proc/{self.process.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) * 1e-9


# ---- What is measured ----

SINGLE = {"decode after 60": (60, NEW), "decode after 1,000": (1000, NEW), "prefill of 1,024": (1024, 1)}
SEVERAL = "8 prompts of 60 at once"


def prompts_of(path):
    """Ids of this project's prose: of random ones a model is so unsure that roundings decide what comes next."""
    import attend
    text = (pathlib.Path(__file__).parent / "README.md").read_text()
    ids = attend.Model.load_tokenizer(path).encode(text).ids.tolist()
    return {what: ids[:length] for what, (length, _) in SINGLE.items()} | {SEVERAL: [ids[60 * n:60 * (n + 1)] for n in range(8)]}


def measure(served, what, prompts):
    """Tokens a second, and the tokens. Of several prompts, from the call to its end: all that is written, with the reading."""
    if what == SEVERAL:
        made, seconds = served.ask("several", prompts[what], NEW)
        return 8 * NEW / seconds, made
    length, new = SINGLE[what]
    made, first, rest = served.ask("generate", prompts[what], new)[0]
    return (length / first if new == 1 else (new - 1) / rest), made


def opened(name, kind, *arguments):
    try:
        return Served(name, kind, *arguments)
    except (RuntimeError, EOFError) as error:
        print(f"left out: {name}: {error}", flush=True)


def read_bytes(path):
    """Of the weights that a token reads, as the file has them."""
    import gguf
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    if "output.weight" in tensors:  # of its embeddings a token reads a row then
        del tensors["token_embd.weight"]
    return sum(int(tensor.n_bytes) for tensor in tensors.values())


class Comparison:
    def __init__(self, path, asked, roof):
        self.path, self.asked, self.roof = path, asked, roof
        self.weights = read_bytes(path)
        self.prompts = prompts_of(path)
        self.kinds = [("attend", Attend, None), *((f"attend, {setting}", Attend, setting) for setting in asked.also),
                      (XLlamaCpp.name, XLlamaCpp, None)]
        if asked.native:
            self.kinds.append(("llama.cpp, native", NativeLlamaCpp, native_packages()))
        self.numbers, self.said = {}, {}

    def round(self, number, slots, measures):
        """In new processes: where a process's memory lies decides a few percent."""
        served = [each for name, kind, setting in self.kinds if (each := opened(name, kind, self.path, self.asked.threads, slots, setting))]
        if slots == 1:
            self.kinds = [kind for kind in self.kinds if any(each.name == kind[0] for each in served)]
            for each in served:
                for fact, value in each.facts.items():
                    self.numbers.setdefault((fact, each.name), []).append(value)
        for what in measures:
            self.roof.measure(served)
            for each in served if number % 2 == 0 else reversed(served):
                wait_until_idle(served)
                speed, self.said[what, each.name] = measure(each, what, self.prompts)
                self.numbers.setdefault((what, each.name), []).append(speed)
        for each in served:
            each.close()

    def run(self):
        for number in range(self.asked.rounds):
            self.round(number, 1, SINGLE)
            self.round(number, 8, [SEVERAL])
        return self

    def row(self, title, cells):
        print(f"| {title} | {' | '.join(cells)} |")

    def print(self):
        names = [name for name, _, _ in self.kinds]
        print(f"\n{self.path.name}, {self.path.stat().st_size / 1e6:.0f} MB; a token reads {self.weights / 1e6:.0f} MB of weights\n")
        print(f"| | {' | '.join(names)} |\n|---|{'---|' * len(names)}")
        for what, title, scale in (*((what, f"{what}, tokens/s", 1) for what in (*SINGLE, SEVERAL)),
                                   ("opening", "opening, to the first token, ms", 1e3), ("memory", "memory of its own, MB", 1e-6)):
            self.row(title, [shown([scale * value for value in self.numbers.get((what, name), [])]) for name in names])
        roof = statistics.median(self.roof.found)
        self.row("decode after 60, of the read roof", [
            f"{statistics.median(self.numbers['decode after 60', name]) * self.weights / roof:.2f}" for name in names])
        for what in (*SINGLE, SEVERAL):
            self.row(f"attend's tokens: {what}", [same(self.said[what, "attend"], self.said.get((what, name))) for name in names])


def shown(values):
    if not values:
        return ""
    digits = 0 if statistics.median(values) >= 100 else 1
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def same(expected, made):
    """How many of them, from the first on: blocks meet other roundings, and a text that parts goes on by itself."""
    if made is None:
        return ""
    expected, made = (lists if isinstance(lists[0], list) else [lists] for lists in (expected, made))
    count = 0
    for own, theirs in zip(expected, made, strict=True):
        parts = [a != b for a, b in zip(own, theirs, strict=True)]
        count += parts.index(True) if True in parts else len(parts)
    return f"{count} of {sum(map(len, expected))}"


class Roof:
    """What the machine reads, measured in the same rounds."""

    def __init__(self, command, threads):
        self.worker = Worker([command]) if pathlib.Path(command).exists() else None
        self.threads, self.found = threads, []

    def measure(self, served):
        wait_until_idle(served)
        if self.worker:
            self.found.append(self.worker.ask(do="roof", roof="read", threads=self.threads, seconds=0.2, bytes=512 << 20)["per_second"])
        else:
            self.found.append(float("nan"))


# ---- Models to measure on what SmolLM2 does not have: its rows have no whole blocks of 256 ----

VOCABULARY = 32000
LLAMA = {"architecture": "llama", "width": 2048, "layers": 8, "heads": 32, "kv_heads": 8, "head_size": 64, "wide": 5632, "base": 10000.0}
QWEN3 = {"architecture": "qwen3", "width": 3072, "layers": 6, "heads": 24, "kv_heads": 8, "head_size": 128, "wide": 8192, "base": 1e6}
# The shape; the type of its matrices; that of every other layer's attn_v and ffn_down; that of its output. As llama.cpp mixes them.
KINDS = {
    "Q4_K_M": (LLAMA, "Q4_K", "Q6_K", "Q6_K"),
    "Q5_K_M": (LLAMA, "Q5_K", "Q6_K", "Q6_K"),
    "Q6_K": (LLAMA, "Q6_K", "Q6_K", "Q6_K"),
    "Q8_0": (LLAMA, "Q8_0", "Q8_0", "Q8_0"),
    "Q4_0": (LLAMA, "Q4_0", "Q4_0", "Q6_K"),
    "IQ4_XS": (LLAMA, "IQ4_XS", "IQ4_XS", "Q6_K"),
    "qwen3-Q4_K_M": (QWEN3, "Q4_K", "Q6_K", "Q6_K"),
}


def random_blocks(random, kind, rows, columns):
    """Blocks of any bytes, whose scales make the weights' deviation 1 / sqrt(columns)."""
    import gguf
    block, size = gguf.GGML_QUANT_SIZES[kind]
    made = random.integers(0, 256, (rows, columns // block, size), dtype=np.uint8)
    middle = {"Q4_K": 7.5, "Q5_K": 15.5}.get(kind.name)  # of their codes, from 0 on: dmin brings it to 0

    def scale(d):
        if middle:
            made[..., :4] = np.array([d, middle * d], np.float16).view(np.uint8)
        elif kind.name == "Q6_K":  # its end
            made[..., -2:] = np.array([d], np.float16).view(np.uint8)
        else:
            made[..., :2] = np.array([d], np.float16).view(np.uint8)

    scale(1e-3)
    sample = gguf.dequantize(made[:64].reshape(min(rows, 64), -1), kind)
    scale(1e-3 / (sample.std() * columns**0.5))
    return made.reshape(rows, -1)


def write_words(writer):
    words = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    words += [f"\u2581w{number}" for number in range(VOCABULARY - len(words))]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(words)
    writer.add_token_scores([-float(number) for number in range(VOCABULARY)])
    writer.add_token_types([2, 3, 3, *[6] * 256, *[1] * (VOCABULARY - 259)])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)


def write_random(path, shape, most, wider, output):
    import gguf
    random, types = np.random.default_rng(7), gguf.GGMLQuantizationType
    width, heads, kv, size = shape["width"], shape["heads"], shape["kv_heads"], shape["head_size"]
    writer = gguf.GGUFWriter(path, shape["architecture"])
    writer.add_context_length(4096)
    writer.add_embedding_length(width)
    writer.add_block_count(shape["layers"])
    writer.add_feed_forward_length(shape["wide"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv)
    writer.add_key_length(size)
    writer.add_value_length(size)
    writer.add_rope_dimension_count(size)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(shape["base"])
    writer.add_vocab_size(VOCABULARY)
    write_words(writer)

    def matrix(name, rows, columns, kind=most):
        writer.add_tensor(f"{name}.weight", random_blocks(random, types[kind], rows, columns), raw_dtype=types[kind])

    def norm(name, count):
        writer.add_tensor(f"{name}.weight", np.ones(count, np.float32))

    matrix("token_embd", VOCABULARY, width)
    for n in range(shape["layers"]):
        for name, rows, columns in (("attn_q", heads * size, width), ("attn_k", kv * size, width), ("attn_output", width, heads * size),
                                    ("ffn_gate", shape["wide"], width), ("ffn_up", shape["wide"], width)):
            matrix(f"blk.{n}.{name}", rows, columns)
        matrix(f"blk.{n}.attn_v", kv * size, width, wider if n % 2 == 0 else most)
        matrix(f"blk.{n}.ffn_down", width, shape["wide"], wider if n % 2 == 0 else most)
        norm(f"blk.{n}.attn_norm", width)
        norm(f"blk.{n}.ffn_norm", width)
        if shape["architecture"] == "qwen3":
            norm(f"blk.{n}.attn_q_norm", size)
            norm(f"blk.{n}.attn_k_norm", size)
    norm("output_norm", width)
    matrix("output", VOCABULARY, width, output)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def versions():
    for name in ("attend", XLlamaCpp.name):
        try:
            yield f"{name} {__import__(name).__version__}"
        except ImportError:
            continue


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--also", nargs="*", default=[], metavar="SETTING", help="attend in these dtypes, and with these activations")
    parser.add_argument("--native", action="store_true", help="llama.cpp compiled for this machine, too")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--random", type=pathlib.Path, metavar="DIR")
    parser.add_argument("--kinds", nargs="*", choices=KINDS, default=["Q4_K_M"], help=f"of --random: {', '.join(KINDS)}")
    parser.add_argument("--worker", default="build/release/attend_bench")
    asked = parser.parse_args()
    files = list(asked.files)
    for kind in asked.kinds if asked.random else ():
        files.append(asked.random / f"random-{kind}.gguf")
        if not files[-1].exists():
            files[-1].parent.mkdir(parents=True, exist_ok=True)
            write_random(files[-1], *KINDS[kind])
    processor = next(line for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name"))
    roof = Roof(asked.worker, asked.threads)
    for path in files:
        Comparison(path, asked, roof).run().print()
    print(f"\n{processor.partition(': ')[2]}, {asked.threads} threads, {', '.join(versions())}; {asked.rounds} rounds, medians, lowest to "
          f"highest; it reads {statistics.median(roof.found) / 1e9:.1f} GB/s; load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
