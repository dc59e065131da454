// What goes wrong on one rank is known on all, at once: arguments that disagree, a rank that is lost or gives up,
// memory that is not there. And what is only slow changes nothing.
#include <barrier>
#include <deque>
#include <limits>

#include "tests/allocations.h"
#include "tests/ring/ranks.h"

namespace attend {
namespace {

using namespace test;

// A transport on which messages are held back, those of different tags overtake each other, and which may break: after
// so many have begun.
class Faulty : public RingTransport {
 public:
  static constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();

  Faulty(RingTransport& inner, std::uint64_t seed, std::int64_t breaks_after = never)
      : inner_(inner), dice_(seed), breaks_after_(breaks_after) {}

  std::int64_t messages() const { return next_; }

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  bool overlaps() const override { return inner_.rank() % 2 == 0; }
  void abandon(std::string_view reason) noexcept override { inner_.abandon(reason); }

  std::int64_t send(int to, int tag, const void* data, std::int64_t bytes) override {
    held_.push_back({next_, to, tag, data, bytes, dice_.below(6)});
    return next_++;
  }
  std::int64_t receive(int from, int tag, void* data, std::int64_t bytes) override {
    begun_[next_] = inner_.receive(from, tag, data, bytes);
    return next_++;
  }
  bool test(std::int64_t request) override {
    if (next_ > breaks_after_) throw Error(ErrorCode::lost_rank, "", "the cable is cut");
    release();
    const auto at = begun_.find(request);
    if (at == begun_.end() || dice_.one_in(3) || !inner_.test(at->second)) return false;
    begun_.erase(at);
    return true;
  }

 private:
  struct Held {
    std::int64_t request;
    int to, tag;
    const void* data;
    std::int64_t bytes, wait;
  };

  // Those whose time has come; of one peer and tag, in order.
  void release() {
    for (auto at = held_.begin(); at != held_.end();) {
      const bool first =
          std::none_of(held_.begin(), at, [&](const Held& h) { return h.to == at->to && h.tag == at->tag; });
      if (--at->wait > 0 || !first) {
        ++at;
        continue;
      }
      begun_[at->request] = inner_.send(at->to, at->tag, at->data, at->bytes);
      at = held_.erase(at);
    }
  }

  RingTransport& inner_;
  Dice dice_;
  std::int64_t breaks_after_, next_ = 0;
  std::deque<Held> held_;
  std::map<std::int64_t, std::int64_t> begun_;
};

struct Both {
  AttentionResult forward;
  AttentionGradients backward;
};

Both both_passes(RingTransport& ranks, const Share& share, const RingSharding& sharding) {
  AttentionResult result =
      ring_attention(ranks, share.q, share.k, share.v, sharding, share.options, {.piece_keys = 192});
  BackwardOptions wanted;
  wanted.lse_low = result.lse_low->view();
  AttentionGradients gradients =
      ring_attention_backward(ranks, result.out, share.q, share.k, share.v, result.out, result.lse, sharding,
                              share.options, wanted, {.piece_keys = 192});
  return {std::move(result), std::move(gradients)};
}

Both both_passes(RingTransport& ranks, const Call& x, const RingSharding& sharding) {
  return both_passes(ranks, Share(x, sharding, ranks.rank()), sharding);
}

TEST(RingFailure, DelaysAndOtherOrdersChangeNoBit) {
  const Call x = make_call({1, 2, 1, 900, 900, 8, 8}, with_causal, DType::f32, 1);
  for (const bool zigzag : {false, true}) {
    for (const int count : {2, 3}) {
      const RingSharding sharding =
          zigzag ? RingSharding::zigzag(count, 900, 900) : RingSharding::contiguous(count, 900, 900);
      std::vector<Both> straight(static_cast<std::size_t>(count));
      run_all(count, [&](RingTransport& ranks) {
        straight[static_cast<std::size_t>(ranks.rank())] = both_passes(ranks, x, sharding);
      });
      for (std::uint64_t seed = 0; seed < 2; ++seed) {
        run_all(count, [&](RingTransport& ranks) {
          Faulty faulty(ranks, seed * 100 + static_cast<std::uint64_t>(ranks.rank()));
          const Both slow = both_passes(faulty, x, sharding);
          const Both& expected = straight[static_cast<std::size_t>(ranks.rank())];
          expect_same(slow.forward.out, expected.forward.out, "out");
          expect_same(slow.backward.dq, expected.backward.dq, "dq");
          expect_same(slow.backward.dk, expected.backward.dk, "dk");
          expect_same(slow.backward.dv, expected.backward.dv, "dv");
        });
      }
    }
  }
}

// Every rank throws, and says whose fault it is.
void expect_all_lost(const std::vector<std::exception_ptr>& thrown, const std::string& who, const std::string& why,
                     int unharmed) {
  for (std::size_t rank = 0; rank < thrown.size(); ++rank) {
    if (static_cast<int>(rank) == unharmed) continue;
    ASSERT_TRUE(thrown[rank]) << "rank " << rank;
    expect_error(
        ErrorCode::lost_rank, [&] { std::rethrow_exception(thrown[rank]); }, who, why);
  }
}

TEST(RingFailure, ARankThatIsGoneEndsAll) {
  const Call x = make_call({1, 2, 1, 1600, 1600, 8, 8}, with_causal, DType::f32, 1);
  const RingSharding sharding = RingSharding::zigzag(4, 1600, 1600);
  auto ranks = threads_as_ranks(4);
  const auto thrown = run_ranks(ranks, [&](RingTransport& own) {
    if (own.rank() == 2)
      ranks[2].reset();
    else
      both_passes(own, x, sharding);
  });
  expect_all_lost(thrown, "rank 2", "is gone", 2);
}

// At whichever of its messages in both passes it happens. At last each tells the others, by two messages for each of
// them and two from them, that it is done: while a rank does so, those that have heard it may be through.
TEST(RingFailure, ARankThatFailsEndsAll) {
  const Call x = make_call({1, 2, 1, 800, 800, 8, 8}, with_causal, DType::f32, 1);
  const RingSharding sharding = RingSharding::zigzag(3, 800, 800);
  std::int64_t messages = 0;
  const auto run = [&](std::int64_t after) {
    auto ranks = threads_as_ranks(3);
    return run_ranks(ranks, [&](RingTransport& own) {
      Faulty faulty(own, 5, own.rank() == 1 ? after : Faulty::never);
      both_passes(faulty, x, sharding);
      if (own.rank() == 1) messages = faulty.messages();
    });
  };
  for (const std::exception_ptr& thrown : run(Faulty::never)) ASSERT_FALSE(thrown);
  const std::int64_t last_words = 2 * (2 + 2);
  ASSERT_GT(messages, 4 * last_words);
  for (std::int64_t after = 0; after < messages; after += 3) {
    const auto thrown = run(after);
    ASSERT_TRUE(thrown[1]) << after;
    expect_error(
        ErrorCode::lost_rank, [&] { std::rethrow_exception(thrown[1]); }, "the cable is cut");
    if (after < messages - last_words) expect_all_lost(thrown, "rank 1", "the cable is cut", 1);
  }
}

// The rank's own error on the rank, with its number on the others.
void expect_refused(const std::function<void(RingTransport&)>& body, int culprit, ErrorCode code,
                    const std::string& text) {
  auto ranks = threads_as_ranks(3);
  const auto thrown = run_ranks(ranks, body);
  for (std::size_t rank = 0; rank < thrown.size(); ++rank) {
    ASSERT_TRUE(thrown[rank]) << text;
    const std::string who = static_cast<int>(rank) == culprit ? "" : "rank " + std::to_string(culprit);
    expect_error(
        code, [&] { std::rethrow_exception(thrown[rank]); }, "ring_attention: " + who, text);
  }
}

TEST(RingFailure, WhatOneRankIsGivenWrongIsAnErrorOfAll) {
  const Call x = make_call({1, 2, 1, 300, 300, 8, 8}, 0, DType::f32, 1);
  const RingSharding sharding = RingSharding::contiguous(3, 300, 300);
  const auto call = [&](RingTransport& ranks, const std::function<void(Share&, RingSharding&)>& change) {
    Share share(x, sharding, ranks.rank());
    RingSharding own = sharding;
    if (ranks.rank() == 1) change(share, own);
    ring_attention(ranks, share.q, share.k, share.v, own, share.options);
  };
  const auto refused = [&](ErrorCode code, const std::string& text,
                           const std::function<void(Share&, RingSharding&)>& change) {
    expect_refused([&](RingTransport& ranks) { call(ranks, change); }, 1, code, text);
  };
  using enum ErrorCode;
  refused(bad_shape, "q [1,2,5,8] has 5 queries, expected", [](Share& s, auto&) { s.q = Tensor({1, 2, 5, 8}); });
  refused(bad_dtype, "q is f64, expected f32, bf16 or f16", [](Share& s, auto&) {
    s.q = s.q.view().to(DType::f64), s.k = s.k.view().to(DType::f64), s.v = s.v.view().to(DType::f64);
  });
  refused(bad_value, "softcap", [](Share& s, auto&) { s.options.softcap = -1; });
  refused(bad_value, "are in no run", [](Share&, RingSharding& own) { own.queries[2][0].begin += 50; });
}

TEST(RingFailure, WhatRanksDisagreeAboutIsNamed) {
  const Call x = make_call({1, 2, 1, 300, 300, 8, 8}, 0, DType::f32, 1);
  const RingSharding sharding = RingSharding::contiguous(3, 300, 300);
  const Tensor sinks = Tensor::from({2}, {1, 2}), others = Tensor::from({2}, {1, 3});
  const auto disagree = [&](const std::string& text, const std::function<void(Share&, bool)>& change) {
    auto ranks = threads_as_ranks(3);
    const auto thrown = run_ranks(ranks, [&](RingTransport& own) {
      Share share(x, sharding, own.rank());
      change(share, own.rank() == 2);
      ring_attention(own, share.q, share.k, share.v, sharding, share.options);
    });
    for (const std::exception_ptr& each : thrown) {
      ASSERT_TRUE(each) << text;
      expect_error(
          ErrorCode::bad_value, [&] { std::rethrow_exception(each); }, "ranks disagree: " + text, "on rank 2");
    }
  };
  disagree("causal is", [](Share& s, bool other) { s.options.causal = other; });
  disagree("scale is 0.5 on rank", [](Share& s, bool other) { s.options.scale = other ? 0.25 : 0.5; });
  disagree("window is (-1,-1)", [](Share& s, bool other) { s.options.window.left = other ? 3 : -1; });
  disagree("dropout is", [](Share& s, bool other) { s.options.dropout = {0.5, other ? 1u : 2u}; });
  disagree("sinks is f32 [2]", [&](Share& s, bool other) { s.options.sinks = other ? sinks : others; });
  disagree("offset is", [](Share& s, bool other) { s.options.offset = other ? Offset::bottom_right() : Offset(0); });
}

// Each allocation in turn, on whichever rank it is: every rank has an error or the right result, and none waits for
// ever.
TEST(RingFailure, MemoryThatIsNotThereHangsNobody) {
  const Call x = make_call({1, 2, 1, 400, 400, 8, 8}, with_causal, DType::f32, 1);
  const RingSharding sharding = RingSharding::zigzag(2, 400, 400);
  std::vector<Both> expected(2);
  run_all(2,
          [&](RingTransport& own) { expected[static_cast<std::size_t>(own.rank())] = both_passes(own, x, sharding); });
  std::vector<Share> shares;
  for (int rank = 0; rank < 2; ++rank) shares.emplace_back(x, sharding, rank);
  int failures = 0, alike = 0;
  for (std::int64_t n = 0; n < 600; n += 7) {
    auto ranks = threads_as_ranks(2);
    std::optional<CountAllocations> fail;
    std::barrier ready(2, [&]() noexcept { fail.emplace(n); });
    const auto thrown = run_ranks(ranks, [&](RingTransport& own) {
      const auto at = static_cast<std::size_t>(own.rank());
      ready.arrive_and_wait();
      const Both both = both_passes(own, shares[at], sharding);
      expect_same(both.backward.dk, expected[at].backward.dk, "dk");
      expect_same(both.backward.dq, expected[at].backward.dq, "dq");
    });
    const bool some = thrown[0] || thrown[1], all = thrown[0] && thrown[1];
    failures += some, alike += some && all;
  }
  EXPECT_GT(failures, 20);
  EXPECT_GT(alike, failures / 2);  // what happens while the last ones say that they are done is known to some alone
}

}  // namespace
}  // namespace attend
