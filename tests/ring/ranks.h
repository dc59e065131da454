// Ranks as threads, each with its share of a call.
#pragma once

#include <exception>
#include <functional>
#include <thread>
#include <vector>

#include "attend/ring.h"
#include "tests/attention/call.h"

namespace attend::test {

// body(rank) on a thread for each. The exceptions, of ranks that threw.
inline std::vector<std::exception_ptr> run_ranks(std::vector<std::unique_ptr<RingTransport>>& ranks,
                                                 const std::function<void(RingTransport&)>& body) {
  std::vector<std::exception_ptr> thrown(ranks.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(*ranks[rank]);
      } catch (...) {
        thrown[rank] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return thrown;
}

inline void run_all(int count, const std::function<void(RingTransport&)>& body) {
  auto ranks = threads_as_ranks(count);
  for (const std::exception_ptr& thrown : run_ranks(ranks, body))
    if (thrown) std::rethrow_exception(thrown);
}

// One rank's part of a call.
struct Share {
  Tensor q, k, v, mask, bias;
  AttentionOptions options;

  Share(const Call& x, const RingSharding& sharding, int rank)
      : q(ring_shard(x.Q, 2, sharding.queries, rank)),
        k(ring_shard(x.K, 2, sharding.keys, rank)),
        v(ring_shard(x.V, 2, sharding.keys, rank)),
        options(x.options) {
    rows(options.mask, mask, x.Q.size(2), sharding, rank);
    rows(options.bias, bias, x.Q.size(2), sharding, rank);
  }

 private:
  // A mask or a bias that has rows of its own.
  static void rows(std::optional<View>& x, Tensor& share, std::int64_t Tq, const RingSharding& sharding, int rank) {
    if (!x || x->rank() < 2 || x->size(-2) != Tq || Tq == 1) return;
    share = ring_shard(*x, -2, sharding.queries, rank);
    x = share.view();
  }
};

inline std::vector<View> views(const std::vector<Tensor>& tensors) {
  return {tensors.begin(), tensors.end()};
}

// The whole result, put together of all ranks'.
inline AttentionResult ring_forward(const Call& x, const RingSharding& sharding, const RingOptions& ring = {}) {
  std::vector<Tensor> out(static_cast<std::size_t>(sharding.ranks())), lse(out.size()), low(out.size());
  run_all(sharding.ranks(), [&](RingTransport& ranks) {
    const Share share(x, sharding, ranks.rank());
    AttentionResult result = ring_attention(ranks, share.q, share.k, share.v, sharding, share.options, ring);
    const auto at = static_cast<std::size_t>(ranks.rank());
    out[at] = std::move(result.out), lse[at] = std::move(result.lse), low[at] = std::move(*result.lse_low);
  });
  const auto whole = [&](const std::vector<Tensor>& shares) {
    return ring_unshard(views(shares), 2, sharding.queries);
  };
  return {whole(out), whole(lse), whole(low)};
}

// Contiguous runs that begin anywhere, some of them perhaps empty.
inline RingSharding uneven(Dice& dice, int ranks, std::int64_t queries, std::int64_t keys) {
  RingSharding sharding;
  for (auto* runs : {&sharding.queries, &sharding.keys}) {
    const std::vector<std::int64_t> at = cuts(dice, runs == &sharding.queries ? queries : keys, ranks);
    for (std::size_t n = 0; n + 1 < at.size(); ++n) runs->push_back({{at[n], at[n + 1]}});
  }
  return sharding;
}

}  // namespace attend::test
