"""attend.torch.ring_attention() and what belongs to it, on processes that gloo connects: beside PyTorch's attention of the
whole sequence, and, bit for bit, beside attend's."""

import itertools
import multiprocessing
import os
import pickle
import signal
import socket
import traceback

import pytest
import torch
import torch.distributed as dist

import attend.torch
from attend import _torch_ranks
from attend.torch import ring_attention, ring_shard, ring_sum, ring_unshard

RANKS = 4
TOKENS = 6 * 192  # tiles that no share cuts

# A server that has imported PyTorch forks each process.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["attend.torch", "torch.distributed"])


# --- In a process ------------------------------------------------------------------------------------------------


class Failed(str):
    """What came instead of an answer."""


def serve(rank, size, connection, init_method):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=init_method, rank=rank, world_size=size)
    groups = {size: None} | {n: dist.new_group(list(range(n))) for n in range(1, size)}
    connection.send_bytes(pickle.dumps("ready"))
    while True:
        name, ranks, arguments = pickle.loads(connection.recv_bytes())
        try:
            answer = globals()[name](groups[ranks], *arguments)
        except BaseException:
            answer = Failed(traceback.format_exc())
        connection.send_bytes(pickle.dumps(answer))


def whole(seed, tokens=(TOKENS, TOKENS), dtype=torch.float32, options=()):
    """q, k, v, dout, and the options that are tensors: the same in each process."""
    torch.manual_seed(seed)
    q, dout = (torch.randn(2, 4, tokens[0], size) for size in (8, 6))
    k, v = (torch.randn(2, 2, tokens[1], size) for size in (8, 6))
    made = {"mask": torch.rand(2, 1, *tokens) < 0.9, "bias": torch.randn(1, 4, *tokens), "sinks": torch.randn(4),
            "alibi_slopes": torch.rand(4), "distance_bias": torch.randn(4, 41)}
    return [x.to(dtype) for x in (q, k, v, dout)], {
        name: made[name] if name == "mask" else made[name].to(dtype) for name in options}


def attend_to(group, seed, sharding, keywords, tokens=(TOKENS, TOKENS), dtype=torch.float32, tensors=()):
    """This rank's out and lse, and the gradients of all that has one: those of options summed."""
    (q, k, v, dout), given = whole(seed, tokens, dtype, tensors)
    axes = sharding if isinstance(sharding, tuple) else (sharding, sharding)
    q, dout = (ring_shard(x, 2, group, sharding=axes[0]) for x in (q, dout))
    k, v = (ring_shard(x, 2, group, sharding=axes[1]) for x in (k, v))
    for name in {"mask", "bias"} & given.keys():
        given[name] = ring_shard(given[name], 2, group, sharding=axes[0])
    q, k, v = (x.clone().requires_grad_() for x in (q, k, v))
    given = {name: x.clone().requires_grad_(x.is_floating_point()) for name, x in given.items()}
    torch.manual_seed(dist.get_rank(group) + 50)
    out, lse = ring_attention(q, k, v, group, sharding=sharding, return_lse=True, **keywords, **given)
    (out * dout).sum().backward()
    gradients = [x.grad for x in (q, k, v)]
    learned = {name: x.grad if name == "bias" else ring_sum(x.grad, group) for name, x in given.items() if name != "mask"}
    return out.detach(), lse.detach(), *gradients, learned


# --- The processes -----------------------------------------------------------------------------------------------


class Team:
    def __init__(self, folder, size=RANKS, init_method=None):
        self.processes, self.connections = [], []
        for rank in range(size):
            here, there = PROCESSES.Pipe()
            arguments = (rank, size, there, init_method or f"file://{folder}/store")
            self.processes.append(PROCESSES.Process(target=serve, args=arguments, daemon=True))
            self.processes[-1].start()
            there.close()
            self.connections.append(here)
        assert self.answers(size) == ["ready"] * size

    def begin(self, name, ranks, *arguments, each=None):
        for rank in range(ranks):
            own = (*arguments, *((each[rank],) if each else ()))
            self.connections[rank].send_bytes(pickle.dumps((name, ranks, own)))

    def answers(self, ranks):
        """Of each rank; None of one that has ended."""
        found = []
        for connection in self.connections[:ranks]:
            try:
                found.append(pickle.loads(connection.recv_bytes()))
            except EOFError:
                found.append(None)
        return found

    def run(self, name, ranks, *arguments, each=None):
        self.begin(name, ranks, *arguments, each=each)
        return self.answers(ranks)

    def results(self, name, ranks, *arguments, each=None):
        found = self.run(name, ranks, *arguments, each=each)
        for answer in found:
            assert not isinstance(answer, Failed), answer
        return found

    def end(self):
        for process in self.processes:
            process.kill()
            process.join()


@pytest.fixture(scope="module")
def team(tmp_path_factory):
    made = Team(tmp_path_factory.mktemp("team"))
    yield made
    made.end()


@pytest.fixture
def lost_team(tmp_path):
    """Processes of whom one will end."""
    made = Team(tmp_path)
    yield made
    made.end()


def joined(shares, dim, sharding, ranks, length):
    """The whole, of all ranks' shares, by places alone."""
    runs = sharding if isinstance(sharding, list) else attend._core._ring_runs(sharding, ranks, length)
    places = [torch.cat([torch.arange(*run) for run in of_rank]) if of_rank else torch.arange(0) for of_rank in runs]
    return torch.cat(shares, dim).index_select(dim, torch.argsort(torch.cat(places)))


def run_both(team, ranks, seed, sharding, keywords=None, tokens=(TOKENS, TOKENS), dtype=torch.float32, tensors=()):
    """(out, lse, dq, dk, dv, {option: gradient}) of the ranks together."""
    found = team.results("attend_to", ranks, seed, sharding, keywords or {}, tokens, dtype, tensors)
    axes = sharding if isinstance(sharding, tuple) else (sharding, sharding)
    rows, keys = ((axis, ranks, length) for axis, length in zip(axes, tokens))
    parts = list(zip(*found))
    learned = dict(parts[5][0])
    if "bias" in learned:
        learned["bias"] = joined([each["bias"] for each in parts[5]], 2, *rows)
    return *(joined(shares, 2, *place) for shares, place in zip(parts[:5], (rows, rows, rows, keys, keys))), learned


def in_one_process(seed, keywords=None, tokens=(TOKENS, TOKENS), dtype=torch.float32, tensors=()):
    (q, k, v, dout), given = whole(seed, tokens, dtype, tensors)
    q, k, v = (x.requires_grad_() for x in (q, k, v))
    given = {name: x.requires_grad_(x.is_floating_point()) for name, x in given.items()}
    out, lse = attend.torch.attention(q, k, v, return_lse=True, **(keywords or {}), **given)
    (out * dout).sum().backward()
    return (out.detach(), lse.detach(), *(x.grad for x in (q, k, v)),
            {name: x.grad for name, x in given.items() if name != "mask"})


UNEVEN = {2: [[(0, 700)], [(700, 1152)]], 3: [[(100, 500)], [(0, 100), (900, 1152)], [(500, 900)]],
          4: [[(0, 1)], [], [(1, 900), (901, 1152)], [(900, 901)]]}


# --- Numbers -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def in_double():
    """PyTorch's (out, lse, dq, dk, dv)."""
    q, k, v, dout = (x.double() for x in whole(1)[0])
    q, k, v = (x.requires_grad_() for x in (q, k, v))
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    out.backward(dout)
    logits = q.detach() @ k.detach().repeat_interleave(2, 1).mT / 8**0.5
    lse = logits.masked_fill_(torch.ones(TOKENS, TOKENS, dtype=torch.bool).triu(1), -torch.inf).logsumexp(-1)
    return out.detach(), lse, q.grad, k.grad, v.grad


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("sharding", ["contiguous", "zigzag", "uneven"])
def test_is_what_pytorch_computes_in_double(team, in_double, ranks, sharding):
    sharding = UNEVEN[ranks] if sharding == "uneven" else sharding
    *found, _ = run_both(team, ranks, 1, sharding, {"causal": True})
    # Each is of the size 1 to 40 (dk and dv of the first keys) and a sum of some thousands of numbers that are rounded to
    # 2^-24 of theirs: errors that add up like a random walk's are below 2^-18 of the largest.
    for actual, right in zip(found, in_double, strict=True):
        torch.testing.assert_close(actual.double(), right, rtol=0, atol=2**-18 * float(right.abs().max()))


OPTIONS = {
    "plain": ({}, ()),
    "window": ({"causal": True, "window": (300, 0), "scale": 0.3}, ()),
    "softcap, sinks": ({"softcap": 2.0, "causal": True}, ("sinks",)),
    "distances": ({"causal": True, "offset": 0}, ("alibi_slopes", "distance_bias")),
    "mask, bias": ({"dropout": (0.2, 2**63 + 5)}, ("mask", "bias")),
    "lengths": ({"key_lengths": [700, 1152], "offset": "bottom_right", "causal": True}, ()),
    "Tq != Tk": ({"causal": True, "offset": "bottom_right", "dropout": (0.3, 7)}, ("sinks",)),
}


def same(actual, expected):
    """Their bits."""
    return actual.dtype == expected.dtype and actual.shape == expected.shape and bool(
        (actual.view(torch.uint8) == expected.view(torch.uint8)).all())


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("sharding", ["contiguous", "zigzag"])
def test_has_the_bits_of_one_process(team, name, sharding):
    keywords, tensors = OPTIONS[name]
    tokens = (TOKENS, 2 * TOKENS) if name == "Tq != Tk" else (TOKENS, TOKENS)
    ranks = 2 + list(OPTIONS).index(name) % 3
    dtype = torch.bfloat16 if name in ("window", "distances") else torch.float32
    *actual, learned = run_both(team, ranks, 2, sharding, keywords, tokens, dtype, tensors)
    *expected, expected_learned = in_one_process(2, keywords, tokens, dtype, tensors)
    for what, one, other in zip(("out", "lse", "dq", "dk", "dv"), actual, expected):
        assert same(one, other), what
    assert learned.keys() == expected_learned.keys()
    # The ranks' rows are summed in another order, and each rank's sum is rounded to the dtype.
    tolerance = {torch.float32: 1e-5, torch.bfloat16: 2**-6}[dtype]
    for option, one in learned.items():
        right = expected_learned[option]
        torch.testing.assert_close(one, right, rtol=0, atol=tolerance * float(right.abs().max()), msg=option)


def test_an_axis_may_be_split_by_itself(team):
    sharding = ([[(0, 384)], [(384, 1152)]], "zigzag")
    actual, expected = run_both(team, 2, 3, sharding), in_one_process(3)
    assert all(same(one, other) for one, other in zip(actual[:5], expected[:5]))


def drop(group, sharding):
    rank = dist.get_rank(group)
    x = ring_shard(torch.ones(1, 2, TOKENS, 4), 2, group, sharding=sharding)
    torch.manual_seed(5 if rank == 0 else 6)
    return [ring_attention(x, x, x, group, sharding=sharding, dropout=0.5) for _ in range(2)]


def test_rank_0_draws_the_seed_of_dropout(team):
    x = torch.ones(1, 2, TOKENS, 4)
    torch.manual_seed(5)
    for of_call in zip(*team.results("drop", 3, "zigzag")):
        assert same(joined(of_call, 2, "zigzag", 3, TOKENS), attend.torch.attention(x, x, x, dropout=0.5))


def pack(group, starts):
    q, k, v = (ring_shard(x[:1], 2, group).requires_grad_() for x in whole(4)[0][:3])
    out = ring_attention(q, k, v, group, cu_seqlens_q=starts, cu_seqlens_k=torch.tensor(starts), causal=True)
    out.square().sum().backward()
    return out.detach(), q.grad, k.grad, v.grad


def test_sequences_cross_ranks(team):
    starts = [0, 192, 960, 1152]
    q, k, v = (x[:1].requires_grad_() for x in whole(4)[0][:3])
    found = zip(*team.results("pack", 4, starts))
    out = torch.cat([attend.torch.attention(*(x[:, :, begin:end] for x in (q, k, v)), causal=True)
                     for begin, end in itertools.pairwise(starts)], 2)
    out.square().sum().backward()
    for shares, right in zip(found, (out.detach(), q.grad, k.grad, v.grad)):
        assert same(torch.cat(shares, 2), right)


# --- Autograd ----------------------------------------------------------------------------------------------------


def through_lse(group):
    x = ring_shard(whole(6)[0][0][:, :, :64], 2, group, sharding=[[(0, 40)], [(40, 64)]]).requires_grad_()
    out, lse = ring_attention(x, x, x, group, return_lse=True)
    first = torch.autograd.grad(lse.square().sum(), x, retain_graph=True)[0]  # of lse alone
    with_graph = torch.autograd.grad(out.sum() + lse.square().sum(), x, create_graph=True)[0]
    second = ""
    try:
        torch.autograd.grad(with_graph.sum(), x)
    except NotImplementedError as error:
        second = str(error)
    with torch.no_grad():
        assert not ring_attention(x, x, x, group).requires_grad
    return first, with_graph.detach(), second


def test_gradients_pass_through_lse_and_have_none_themselves(team):
    found = team.results("through_lse", 2)
    x = whole(6)[0][0][:, :, :64].double().requires_grad_()
    logits = x @ x.mT / 8**0.5
    lse = logits.logsumexp(-1)
    of_lse = torch.autograd.grad(lse.square().sum(), x, retain_graph=True)[0]
    of_both = torch.autograd.grad((logits.softmax(-1) @ x).sum() + lse.square().sum(), x)[0]
    for n, right in enumerate((of_lse, of_both)):
        actual = torch.cat([each[n] for each in found], 2).double()
        torch.testing.assert_close(actual, right, rtol=0, atol=2**-18 * float(right.abs().max()))
    assert all("second derivative" in each[2] for each in found)


def of_options(group):
    x, sinks = torch.ones(1, 2, 10, 4), torch.zeros(2, requires_grad=True)
    ring_attention(x, x, x, group, sinks=sinks).sum().backward()
    mine = sinks.grad.clone()
    return mine, ring_sum(sinks.grad, group)


def test_gradients_of_what_all_ranks_hold_are_shares(team):
    shares, sums = zip(*team.results("of_options", 3))
    assert all(same(each, sums[0]) for each in sums)
    torch.testing.assert_close(sum(shares), sums[0])
    assert float(shares[0].abs().min()) > 0


# --- Shares ------------------------------------------------------------------------------------------------------


def there_and_back(group, sharding, dim, dtype):
    x = torch.arange(2 * 1152 * 3).reshape(2, 1152, 3).transpose(1, dim).to(dtype)
    share = ring_shard(x, dim, group, sharding=sharding)
    assert torch.equal(ring_unshard(share, dim - 3, group, sharding=sharding), x)
    return share


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_what_is_split_comes_together_again(team, ranks):
    for sharding, dim, dtype in (("contiguous", 1, torch.bool), ("zigzag", 0, torch.float64), (UNEVEN[ranks], 2, torch.int64),
                                 ("zigzag", 1, torch.bfloat16)):
        shares = team.results("there_and_back", ranks, sharding, dim, dtype)
        x = torch.arange(2 * 1152 * 3).reshape(2, 1152, 3).transpose(1, dim).to(dtype)
        assert torch.equal(joined(shares, dim, sharding, ranks, 1152), x)


def of_shards(group):
    x = torch.zeros(8 * 192, requires_grad=True)
    ring_shard(x, 0, group, sharding="zigzag").sum().backward()
    return x.grad


def test_a_share_passes_gradients_on(team):
    found = team.results("of_shards", 4)
    assert all(each.count_nonzero() == 2 * 192 for each in found)
    assert torch.equal(sum(found), torch.ones(8 * 192))


def sums(group, dtype):
    rank = dist.get_rank(group)
    x = torch.full((5, 3), 2.0**-24 if rank else 1.0, dtype=dtype).t()
    assert ring_sum(x, group) is x
    return x


def test_sums_are_in_the_order_of_the_ranks(team):
    for dtype, right in ((torch.float32, 1.0), (torch.float64, 1 + 3 * 2.0**-24), (torch.bfloat16, 1.0)):
        for x in team.results("sums", 4, dtype):
            assert torch.equal(x, torch.full((3, 5), right, dtype=dtype))


# --- Errors ------------------------------------------------------------------------------------------------------


def call_with(group, changes):
    """One call whose arguments may be wrong; and, where it was, another one that is right."""
    x = torch.ones(1, 2, 8, 4)
    arguments = {"q": x, "k": x, "v": x, "sharding": "contiguous"} | changes
    function = arguments.pop("function", ring_attention)
    try:
        if function is ring_attention:
            function(**arguments, group=group)
        else:
            function(x, group=group)
    except Exception as error:
        return type(error).__name__, str(error), float(ring_attention(x, x, x, group).sum())
    return None


ones = torch.ones(1, 2, 8, 4)
WRONG = {
    "causal": ({"causal": True}, "ValueError", "ranks disagree: causal is", "true on rank 1"),
    "shape": ({"q": torch.ones(1, 4, 8, 4)}, "ValueError", "ranks disagree: q is", "[1,4,24,4] on rank 1"),
    "heads": ({"q": torch.ones(1, 3, 8, 4)}, "ValueError", "rank 1: q has 3 heads, expected a multiple of k's 2"),
    "type": ({"mask": 5}, "TypeError", "rank 1: mask: expected a PyTorch tensor, got int"),
    "option": ({"softcap": "much"}, "TypeError", "rank 1: softcap: expected a number"),
    "double": ({"q": ones.double(), "k": ones.double(), "v": ones.double()}, "TypeError", "rank 1: q is float64"),
    "sharding": ({"sharding": "zigzag"}, "ValueError", "ranks disagree: sharding is", "'zigzag'] on rank 1"),
    "dropout": ({"dropout": 0.5}, "ValueError", "ranks disagree: dropout is 0.0 on rank 0, 0.5 on rank 1"),
    "seed": ({"dropout": (0.5, 3)}, "ValueError", "ranks disagree: dropout is 0.0 on rank 0, (0.5, 3) on rank 1"),
    "gradient": ({"q": ones.clone().requires_grad_()}, "ValueError", "ranks disagree: records a gradient is False on rank 0"),
    "function": ({"function": ring_sum}, "ValueError", "ranks disagree: function is ring_attention on rank 0, ring_sum on"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_one_rank_gets_wrong_every_rank_says(team, name):
    wrong, kind, *texts = WRONG[name]
    for rank, (error, message, after) in enumerate(team.results("call_with", 3, each=[{}, wrong, {}])):
        assert error == kind, message
        for text in texts:
            assert (text.removeprefix("rank 1: ") if rank == 1 else text) in message, message
        assert after == 64.0  # the next call is as if nothing had been


def alone(group):
    found = []
    x = torch.ones(1, 2, 8, 4)
    for call in (lambda: ring_shard(x, 2, group, sharding=[[(0, 8)], [(4, 8)]]), lambda: ring_shard(x, 7, group),
                 lambda: ring_shard(x, 2, group, sharding="zig"), lambda: ring_shard([1], 0, group),
                 lambda: ring_unshard(x, 2, group, sharding=[[(0, 8)], [(9, 17)]]),
                 lambda: ring_unshard(x.requires_grad_(), 2, group), lambda: ring_attention(x, x, x, 5)):
        try:
            call()
            found.append("")
        except (TypeError, ValueError) as error:
            found.append(f"{type(error).__name__}: {error}")
    return found


def test_errors_say_what_was_expected(team):
    for found in team.results("alone", 2):
        expected = ["ValueError: ring_shard: sharding: expected runs that have each of 8 positions once",
                    "ValueError: ring_shard: dim is 7, x has shape", "ValueError: ring_shard: sharding: expected 'contiguous'",
                    "TypeError: ring_shard: x: expected a PyTorch tensor, got list",
                    "ValueError: ring_unshard: sharding: expected runs that have each of 16 positions once",
                    "ValueError: ring_unshard: x requires a gradient", "TypeError: ring_attention: group: expected"]
        for actual, begin in zip(found, expected, strict=True):
            assert actual.startswith(begin)


# --- Lost ranks --------------------------------------------------------------------------------------------------


def raises(error):
    raise error


ENDS = {
    "exit": lambda: os._exit(3),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "memory": lambda: raises(MemoryError("no memory for this")),
    "interrupt": lambda: signal.raise_signal(signal.SIGINT),
}


def end_in_the_middle(group, how, which, after, backward):
    """Calls on and on; rank `which` meets its end in one of them, after so many messages."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which nohup ignores
    rank = dist.get_rank(group)
    x = torch.ones(1, 2, 960, 16, requires_grad=True)
    out = ring_attention(x, x, x, group, sharding="contiguous", causal=True) if backward else None
    if rank == which:
        test, count = _torch_ranks.Ranks.receive, iter(range(after))

        def receive(self, *arguments):
            if next(count, None) is None:
                ENDS[how]()
            return test(self, *arguments)

        _torch_ranks.Ranks.receive = receive
    try:
        while True:
            if backward:
                out.sum().backward(retain_graph=True)
            else:
                ring_attention(x.detach(), x.detach(), x.detach(), group, causal=True)
    except BaseException as error:
        found = [type(error).__name__, str(error)]
    try:
        ring_sum(torch.ones(1), group)
    except ConnectionError as error:
        found.append(str(error))
    return found


@pytest.mark.parametrize("how, backward", [("exit", False), ("kill", True), ("memory", True), ("interrupt", False)])
def test_every_rank_says_who_is_lost_and_why(lost_team, how, backward):
    found = lost_team.run("end_in_the_middle", 4, how, 2, 25, backward)
    own = found.pop(2)
    if how in ("memory", "interrupt"):
        assert own[0] == {"memory": "MemoryError", "interrupt": "KeyboardInterrupt"}[how], own
    else:
        assert own is None
    for kind, message, after in found:
        assert kind == "ConnectionError" and "rank 2" in message, message
        assert {"memory": "MemoryError: no memory for this", "interrupt": "KeyboardInterrupt"}.get(how, "Connection ") in message
        assert "new_group()" in after and "rank 2" in after


def test_the_rank_that_has_the_store_may_be_the_one(tmp_path):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    team = Team(tmp_path, 4, f"tcp://localhost:{port}")
    try:
        found = team.run("end_in_the_middle", 4, "exit", 0, 25, False)
        assert found[0] is None
        for kind, message, _ in found[1:]:
            assert kind == "ConnectionError" and "rank 0" in message, message
    finally:
        team.end()
