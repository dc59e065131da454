#include "models/generation_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "attend/error.h"
#include "core/message.h"
#include "models/config.h"

namespace attend::inline v0::models {

namespace {

using nlohmann::json;

// The keys of Transformers 5.23's GenerationConfig that change no token, or none with these values; null never does.
// "free": whatever they say. How many tokens there are is what the caller of generate() says; then come what counts for
// beams, which num_beams and num_beam_groups name, or for drafts, which need another model; how the same numbers are
// computed and what is returned beside them; where the file is from. "drawn": while do_sample is true. What is neither
// here nor read below is not followed. tests/pytorch/test_generation_config.py holds this against generate().
constexpr std::string_view keys_text = R"json({
"free": ["max_length", "max_new_tokens", "early_stopping", "length_penalty", "diversity_penalty", "low_memory",
  "num_assistant_tokens", "num_assistant_tokens_schedule", "assistant_confidence_threshold", "assistant_lookbehind",
  "target_lookbehind", "assistant_ensemble_weight", "speculation_type", "max_matching_ngram_size", "use_cache",
  "cache_config", "max_cache_len", "prefill_chunk_size", "disable_compile", "continuous_batching_config",
  "remove_invalid_values", "renormalize_logits", "pad_token_id", "return_dict_in_generate", "output_attentions",
  "output_hidden_states", "output_logits", "output_scores", "transformers_version", "_from_model_config",
  "_commit_hash"],
"drawn": {"temperature": [1], "top_k": [], "top_p": [1], "min_p": [], "top_h": [], "typical_p": [1],
  "epsilon_cutoff": [0], "eta_cutoff": [0]},
"values": {"do_sample": [false], "num_beams": [1], "num_beam_groups": [1], "num_return_sequences": [1],
  "min_length": [0], "min_new_tokens": [0], "max_time": [], "stop_strings": [], "no_repeat_ngram_size": [0],
  "encoder_no_repeat_ngram_size": [0], "repetition_penalty": [1], "encoder_repetition_penalty": [1],
  "exponential_decay_length_penalty": [], "begin_suppress_tokens": [[]], "sequence_bias": [], "force_words_ids": [],
  "constraints": [], "guidance_scale": [1], "watermarking_config": [], "token_healing": [false], "penalty_alpha": [0],
  "dola_layers": [], "use_mtp": [false], "is_assistant": [false], "prompt_lookup_num_tokens": [],
  "assistant_early_exit": [], "compile_config": [],
  "cache_implementation": ["dynamic", "static", "hybrid", "sliding_window"]}
})json";

const json& keys() {
  static const json parsed = json::parse(keys_text);
  return parsed;
}

bool changes_nothing(const std::string& key, const json& value, const json& all) {
  const auto is_among = [&](const json& list, const json& what) { return std::ranges::find(list, what) != list.end(); };
  if (value.is_null() || is_among(keys().at("free"), key)) return true;
  const json &values = keys().at("values"), &drawn = keys().at("drawn");
  if (values.contains(key)) return is_among(values.at(key), value);
  if (!drawn.contains(key)) return false;
  return is_among(drawn.at(key), value) || changes_nothing("do_sample", all.value("do_sample", json()), all);
}

// Words of one token; what ends a text stays, as there.
void read_bad_words(const Member& of, ModelInfo& info) {
  std::vector<std::int64_t> never;
  bool all = true;
  const std::vector<Member> words = of.list();
  if (words.empty()) of.refuse("words");
  for (const Member& word : words) {
    const std::vector<Member> ids = word.list();
    if (ids.empty()) word.refuse("ids");
    for (const Member& each : ids) (void)each.whole(0);
    const std::int64_t id = ids.front().whole(0);
    if (ids.size() > 1)
      all = false;
    else if (std::ranges::find(info.end, id) == info.end.end())
      never.push_back(id);
  }
  info.never.insert(info.never.end(), never.begin(), never.end());
  if (!all) info.not_followed.emplace_back("bad_words_ids of several tokens");
}

struct Followed {
  const char* key;
  void (*read)(const Member& value, ModelInfo& info);
};
// In this order: the start is bos_token_id where there is no other, and bad words ask for the ends.
constexpr Followed followed[] = {
    {"eos_token_id",
     [](const Member& ids, ModelInfo& info) {
       if (ids.value().empty()) ids.refuse("ids");
       info.end = ids_of(ids);
     }},
    {"bos_token_id",
     [](const Member& id, ModelInfo& info) {
       if (info.encoder_decoder()) info.start = id.whole(0);
     }},
    {"decoder_start_token_id",
     [](const Member& id, ModelInfo& info) {
       if (info.encoder_decoder()) info.start = id_of(id);
     }},
    {"forced_bos_token_id", [](const Member& id, ModelInfo& info) { info.first = id.whole(0); }},
    {"forced_eos_token_id", [](const Member& id, ModelInfo& info) { info.last = id_of(id); }},
    {"suppress_tokens",
     [](const Member& ids, ModelInfo& info) {
       if (!ids.value().is_array()) ids.refuse("a list of ids");
       info.never = ids_of(ids);
     }},
    {"bad_words_ids", read_bad_words},
};

// What config.json has of it, which Transformers reads as its generation_config.json where there is none: its own keys.
bool is_of_generation(const std::string& key) {
  return keys().at("values").contains(key) || keys().at("drawn").contains(key);
}

}  // namespace

void read_generation(const Member& from, bool is_config, ModelInfo& info) {
  if (!from.value().is_object()) from.refuse("an object");
  info.end.clear();
  const auto follow = [&](const char* key, const auto& read) {
    if (!from.given(key)) return;
    try {
      read(from[key]);
    } catch (const Error&) {
      info.not_followed.emplace_back(key);
    }
  };
  for (const Followed& each : followed) follow(each.key, [&](const Member& value) { each.read(value, info); });
  // What BART's oldest files say in place of forced_bos_token_id.
  if (is_config && from.given("bos_token_id"))
    follow("force_bos_token_to_be_generated", [&](const Member& said) {
      if (said.truth()) info.first = from["bos_token_id"].whole(0);
    });
  for (const auto& [key, value] : from.value().items()) {
    if (std::ranges::find(followed, key, &Followed::key) != std::end(followed)) continue;
    if (changes_nothing(key, value, from.value()) || (is_config && !is_of_generation(key))) continue;
    const std::string name = is_of_generation(key) ? key : quote(key);
    info.not_followed.push_back(value.is_number() || value.is_boolean() ? name + " " + value.dump() : name);
  }
}

}  // namespace attend::inline v0::models
