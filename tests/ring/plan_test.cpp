// plan_ring() says what runs; and nobody ever holds all keys.
#include "tests/allocations.h"
#include "tests/ring/ranks.h"

namespace attend {
namespace {

using namespace test;

// Counts what a rank sends.
class Counting : public RingTransport {
 public:
  explicit Counting(RingTransport& inner) : inner_(inner) {}
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  void abandon(std::string_view reason) noexcept override { inner_.abandon(reason); }
  std::int64_t send(int to, int tag, const void* data, std::int64_t bytes) override {
    if (tag < 32000) sent += bytes, ++sends;  // pieces
    return inner_.send(to, tag, data, bytes);
  }
  std::int64_t receive(int from, int tag, void* data, std::int64_t bytes) override {
    if (tag < 32000) received += bytes;
    return inner_.receive(from, tag, data, bytes);
  }
  bool test(std::int64_t request) override { return inner_.test(request); }

  std::int64_t sent = 0, sends = 0, received = 0;

 private:
  RingTransport& inner_;
};

TEST(RingPlan, CountsWhatIsSent) {
  for (const unsigned wanted : {0u, unsigned{with_causal}, unsigned{with_window}}) {
    Call x = make_call({1, 4, 2, 1600, 1600, 16, 8}, wanted, DType::bf16, 2);
    if (wanted & with_window) x.options.window = {300, 0};
    for (const RingSharding& sharding :
         {RingSharding::contiguous(4, 1600, 1600), RingSharding::zigzag(4, 1600, 1600)}) {
      const auto planned = [&](bool backward) {
        return plan_ring(x.Q.shape(), x.K.shape(), x.V.shape(), DType::bf16, sharding, x.options, backward, {},
                         {.piece_keys = 192});
      };
      const RingPlan forward = planned(false), backward = planned(true);
      run_all(4, [&](RingTransport& inner) {
        const auto at = static_cast<std::size_t>(inner.rank());
        const Share share(x, sharding, inner.rank());
        Counting ranks(inner);
        const AttentionResult r =
            ring_attention(ranks, share.q, share.k, share.v, sharding, share.options, {.piece_keys = 192});
        EXPECT_EQ(ranks.sent, forward.ranks[at].sent_bytes) << x.what;
        EXPECT_EQ(ranks.sends, forward.ranks[at].sends) << x.what;
        EXPECT_EQ(ranks.received, forward.ranks[at].received_bytes) << x.what;
        Counting back(inner);
        BackwardOptions o;
        o.lse_low = r.lse_low->view();
        ring_attention_backward(back, r.out, share.q, share.k, share.v, r.out, r.lse, sharding, share.options, o,
                                {.piece_keys = 192});
        EXPECT_EQ(back.sent, backward.ranks[at].sent_bytes) << x.what;
        EXPECT_EQ(back.sends, backward.ranks[at].sends) << x.what;
        EXPECT_EQ(back.received, backward.ranks[at].received_bytes) << x.what;
      });
    }
  }
}

// Without a mask each key goes to each rank that sees it once: (P - 1) times all keys and values, of P ranks together.
TEST(RingPlan, SendsNoKeyTwiceToARank) {
  const RingSharding sharding = RingSharding::contiguous(4, 1536, 1536);
  const RingPlan plan = plan_ring({1, 2, 1536, 64}, {1, 2, 1536, 64}, {1, 2, 1536, 64}, DType::f32, sharding);
  std::int64_t sent = 0;
  for (const RingRankPlan& rank : plan.ranks) sent += rank.sent_bytes;
  EXPECT_EQ(sent, 3 * 2 * 1536 * (64 + 64) * 4);
  AttentionOptions causal;
  causal.causal = true;
  const RingPlan half = plan_ring({1, 2, 1536, 64}, {1, 2, 1536, 64}, {1, 2, 1536, 64}, DType::f32, sharding, causal);
  std::int64_t less = 0;
  for (const RingRankPlan& rank : half.ranks) less += rank.sent_bytes;
  EXPECT_EQ(less, sent / 2);
  AttentionOptions window;
  window.window = {100, 0};
  const RingPlan near = plan_ring({1, 2, 1536, 64}, {1, 2, 1536, 64}, {1, 2, 1536, 64}, DType::f32, sharding, window);
  EXPECT_EQ(near.ranks[0].sent_bytes, sent / 12);  // to the next rank alone
  EXPECT_EQ(near.ranks[3].sent_bytes, 0);
}

// Backwards and without a mask each piece visits every rank, from the last one on. Its keys and values go there from
// their owner and on with it while others need them, its sums in f32 from each rank to the next, its gradients home.
TEST(RingPlan, SendsKeysWithTheirSumsAlongTheRanksAndHome) {
  const std::int64_t P = 4, n = 384, H = 2, D = 64;  // a piece for each rank
  const Dims shape{1, H, P * n, D};
  const RingPlan plan = plan_ring(shape, shape, shape, DType::bf16, RingSharding::contiguous(4, P * n, P * n), {}, true,
                                  {}, {.piece_keys = 384});
  const std::int64_t keys = H * n * 2 * D * 2, sums = H * n * 2 * D * 4;
  std::int64_t expected = 0, sent = 0;
  for (std::int64_t owner = 0; owner < P; ++owner) {
    if (owner != P - 1) expected += keys;             // to the last rank, where it begins
    expected += (P - 1) * sums;                       // from rank to rank
    expected += (owner == 0 ? P - 2 : P - 1) * keys;  // with it, but not to an owner who is the last to need them
    if (owner != 0) expected += keys;                 // home, in their dtype
  }
  for (const RingRankPlan& rank : plan.ranks) sent += rank.sent_bytes;
  EXPECT_EQ(sent, expected);
}

TEST(RingPlan, PredictsMoreForSlowNetworks) {
  const RingSharding sharding = RingSharding::zigzag(8, 65536, 65536);
  const Dims shape{1, 8, 65536, 64};
  AttentionOptions causal;
  causal.causal = true;
  for (const bool backward : {false, true}) {
    const auto with = [&](double bytes_per_second) {
      return plan_ring(shape, shape, shape, DType::f32, sharding, causal, backward,
                       {.flops_per_second = 1e12, .bytes_per_second = bytes_per_second});
    };
    const RingPlan fast = with(1e12), slow = with(1e8);
    EXPECT_GT(fast.efficiency, 0.8);
    EXPECT_LE(fast.efficiency, 1);
    EXPECT_LT(slow.efficiency, fast.efficiency / 2);
    EXPECT_GT(fast.seconds, 0);
  }
}

// All ranks together allocate what the plan says they hold, and what they give back: with 8 of them, less than half of
// what it would take for each to gather all keys.
TEST(RingMemory, NobodyHoldsAllKeys) {
  const std::int64_t keys = 8 * 1536, D = 64;
  const Call x = make_call({1, 2, 2, 1536, keys, D, D}, 0, DType::f32, 2);
  const RingSharding sharding = RingSharding::contiguous(8, 1536, keys);
  for (const bool backward : {false, true}) {
    const RingPlan plan =
        plan_ring(x.Q.shape(), x.K.shape(), x.V.shape(), DType::f32, sharding, {}, backward, {}, {.piece_keys = 192});
    std::int64_t planned = 0;
    for (const RingRankPlan& rank : plan.ranks) planned += rank.in_flight_bytes + rank.state_bytes + rank.share_bytes;
    const std::int64_t gathered = 8 * 2 * keys * 2 * D * 4 * (backward ? 2 : 1);
    auto ranks = threads_as_ranks(8);
    std::vector<Share> shares;
    std::vector<AttentionResult> results(8);
    for (int rank = 0; rank < 8; ++rank) shares.emplace_back(x, sharding, rank);
    const auto forward = [&](RingTransport& own) {
      const auto at = static_cast<std::size_t>(own.rank());
      const Share& s = shares[at];
      results[at] = ring_attention(own, s.q, s.k, s.v, sharding, s.options, {.piece_keys = 192});
    };
    if (backward) run_ranks(ranks, forward);
    const CountAllocations count;
    run_ranks(ranks, [&](RingTransport& own) {
      if (!backward) return forward(own);
      const auto at = static_cast<std::size_t>(own.rank());
      const Share& s = shares[at];
      BackwardOptions o;
      o.lse_low = results[at].lse_low->view();
      ring_attention_backward(own, results[at].out, s.q, s.k, s.v, results[at].out, results[at].lse, sharding,
                              s.options, o, {.piece_keys = 192});
    });
    constexpr std::int64_t scratch = 8 * (std::int64_t{4} << 20);  // of the kernels, of 8 ranks
    EXPECT_LT(count.tensor_bytes(), planned + scratch);
    EXPECT_LT(count.tensor_bytes(), gathered / 2);
  }
}

}  // namespace
}  // namespace attend
