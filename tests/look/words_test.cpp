// Where heads look, in words, beside each weight.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "attend/attention.h"
#include "attend/look.h"
#include "attend/random.h"

namespace attend {
namespace {

const std::vector<std::string> tokens = {"[CLS]", "the", "cats", ",", "one", "2", "...", "sat", "on", "it", "[SEP]"};
const std::vector<std::int64_t> words = {1, 2, 4, 5, 7, 8, 9};
const auto count = static_cast<std::int64_t>(tokens.size());

Recording record(bool causal) {
  Generator generator(11);
  Recorder recorder({.top = count, .keep_qk = true});
  for (const char* name : {"0.self", "1.self"}) {
    const Tensor q = generator.randn({1, 3, count, 8}), k = generator.randn({1, 3, count, 8});
    const AttentionOptions options{.causal = causal};
    const AttentionResult rows = attention(q, k, k, options, {.lse_low = true});
    recorder.add({name}, q, k, rows.lse, *rows.lse_low, options);
  }
  Recording recording = recorder.finish();
  recording.tokens.push_back(tokens);
  return recording;
}

// A query's strongest key among words, not beside it; of a decoder not the first token; never the sink. -1: none.
std::int64_t strongest(const Recording& recording, const RecordedHead& head, bool causal, std::int64_t query) {
  const Tensor weights = recording.weights(head.layer, 0, head.scores.head);
  const float* row = weights.data<float>() + query * count;
  std::int64_t best = -1;
  for (const std::int64_t key : words) {
    if (std::abs(key - query) <= 1 || (causal && key > query)) continue;
    if (head.scores.has_label("sink") && head.scores.sink_key == key) continue;
    if (best < 0 || row[key] > row[best]) best = key;
  }
  return best;
}

TEST(LookWords, LinksOfEachQueryAreItsStrongestKeysAmongWords) {
  for (const bool causal : {false, true}) {
    const Recording recording = record(causal);
    const std::vector<RecordedHead> heads = heads_of(recording);
    const auto found = query_links(recording, heads, 100);
    ASSERT_EQ(std::ssize(found), count);
    for (std::int64_t query = 0; query < count; ++query) {
      const std::vector<HeadLink>& links = found[static_cast<std::size_t>(query)];
      std::size_t with_link = 0;
      for (const RecordedHead& head : heads) {
        const std::int64_t key = strongest(recording, head, causal, query);
        if (key < 0) continue;
        ++with_link;
        const auto link = std::ranges::find_if(
            links, [&](const HeadLink& x) { return x.layer == head.layer && x.head == head.scores.head; });
        ASSERT_NE(link, links.end()) << query;
        EXPECT_EQ(link->link.query, query);
        EXPECT_EQ(link->link.key, key);
        const Tensor weights = recording.weights(head.layer, 0, head.scores.head);
        EXPECT_NEAR(link->link.weight, weights.data<float>()[query * count + key], 1e-6);
      }
      EXPECT_EQ(links.size(), with_link) << query;
      EXPECT_TRUE(std::ranges::is_sorted(links, std::greater(), [](const HeadLink& x) { return x.link.weight; }));
    }
    const auto few = query_links(recording, heads, 2);
    ASSERT_EQ(few[9].size(), 2U);
    EXPECT_EQ(few[9][1].link.weight, found[9][1].link.weight);
  }
}

}  // namespace
}  // namespace attend
