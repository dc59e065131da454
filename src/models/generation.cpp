#include "models/generation.h"

#include <array>
#include <utility>

#include "attend/error.h"
#include "models/config.h"

namespace attend::models {

namespace {

// What changes the text that Transformers would write, and the value that changes nothing.
constexpr std::array<std::pair<const char*, double>, 8> others = {{{"num_beams", 1},
                                                                   {"min_length", 0},
                                                                   {"min_new_tokens", 0},
                                                                   {"no_repeat_ngram_size", 0},
                                                                   {"encoder_no_repeat_ngram_size", 0},
                                                                   {"repetition_penalty", 1},
                                                                   {"encoder_repetition_penalty", 1},
                                                                   {"penalty_alpha", 0}}};

std::vector<std::int64_t> ids_of(const Member& list) {
  std::vector<std::int64_t> ids;
  for (const Member& each : list.list()) ids.push_back(each.whole(0));
  return ids;
}

void read_bad_words(const Member& list, ModelInfo& info) {
  for (const Member& word : list.list()) {
    const std::vector<std::int64_t> ids = ids_of(word);
    if (ids.size() == 1)
      info.never.push_back(ids[0]);
    else
      info.not_followed.emplace_back("bad_words_ids of several tokens");
  }
}

}  // namespace

void read_generation(const Member& from, bool is_config, ModelInfo& info) {
  if (!from.value().is_object()) from.refuse("an object");
  info.end = end_ids(from);
  if (info.encoder_decoder() && from.given("decoder_start_token_id"))
    info.start = from["decoder_start_token_id"].whole(0);
  const auto read = [&](const char* key, const auto& take) {
    if (!from.given(key)) return;
    try {
      take(from[key]);
    } catch (const Error&) {
      if (!is_config) throw;
      info.not_followed.emplace_back(key);
    }
  };
  read("forced_bos_token_id", [&](const Member& id) { info.first = id.whole(0); });
  read("suppress_tokens", [&](const Member& list) { info.never = ids_of(list); });
  read("bad_words_ids", [&](const Member& list) { read_bad_words(list, info); });
  for (const auto& other : others) {
    read(other.first, [&](const Member& value) {
      if (value.number() != other.second)
        info.not_followed.push_back(fmt::format("{} {}", other.first, value.number()));
    });
  }
}

}  // namespace attend::models
