#include "models/generation_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "attend/error.h"
#include "core/message.h"
#include "models/config.h"
#include "models/settings.h"

namespace attend::inline v1::models {

namespace {

using nlohmann::json;

// The keys of Transformers 5.23's GenerationConfig that change no token, or none with these values; null never does.
// "free": whatever they say. How many tokens there are is what the caller of generate() says; then come what counts for
// groups of beams, which num_beam_groups names, or for drafts, which need another model; how the same numbers are
// computed and what is returned beside them; where the file is from. "drawn": while do_sample is true. What is
// neither here nor read below is not followed.
// tests/pytorch/test_generation_config.py holds this against generate().
constexpr std::string_view keys_text = R"json({
"free": ["max_length", "max_new_tokens", "diversity_penalty", "low_memory",
  "num_assistant_tokens", "num_assistant_tokens_schedule", "assistant_confidence_threshold", "assistant_lookbehind",
  "target_lookbehind", "assistant_ensemble_weight", "speculation_type", "max_matching_ngram_size", "use_cache",
  "cache_config", "max_cache_len", "prefill_chunk_size", "disable_compile", "continuous_batching_config",
  "remove_invalid_values", "renormalize_logits", "pad_token_id", "return_dict_in_generate", "output_attentions",
  "output_hidden_states", "output_logits", "output_scores", "transformers_version", "_from_model_config",
  "_commit_hash"],
"drawn": {"top_h": [], "typical_p": [1], "epsilon_cutoff": [0], "eta_cutoff": [0]},
"values": {"num_beam_groups": [1], "num_return_sequences": [1], "max_time": [],
  "encoder_no_repeat_ngram_size": [0], "encoder_repetition_penalty": [1], "exponential_decay_length_penalty": [],
  "force_words_ids": [], "constraints": [], "guidance_scale": [1], "watermarking_config": [], "token_healing": [false], "penalty_alpha": [0],
  "dola_layers": [], "use_mtp": [false], "is_assistant": [false], "prompt_lookup_num_tokens": [],
  "assistant_early_exit": [], "compile_config": [],
  "cache_implementation": ["dynamic", "static", "hybrid", "sliding_window"]}
})json";

const json& keys() {
  static const json parsed = json::parse(keys_text);
  return parsed;
}

bool changes_nothing(const std::string& key, const json& value, bool draws) {
  const auto is_among = [&](const json& list, const json& what) { return std::ranges::find(list, what) != list.end(); };
  if (value.is_null() || is_among(keys().at("free"), key)) return true;
  const json &values = keys().at("values"), &drawn = keys().at("drawn");
  if (values.contains(key)) return is_among(values.at(key), value);
  return drawn.contains(key) && (!draws || is_among(drawn.at(key), value));
}

std::vector<std::int64_t> whole_list(const Member& of) {
  std::vector<std::int64_t> ids;
  for (const Member& each : of.list()) ids.push_back(each.whole(0));
  return ids;
}

// What the output layer has no row for never comes anyway.
std::vector<std::int64_t> tokens_of(const Member& of, std::int64_t vocabulary) {
  if (!of.value().is_array()) of.refuse("a list of ids");
  std::vector<std::int64_t> ids = ids_of(of);
  std::erase_if(ids, [&](std::int64_t id) { return id >= vocabulary; });
  return ids;
}

std::vector<std::vector<std::int64_t>> bad_words(const Member& of) {
  std::vector<std::vector<std::int64_t>> words;
  for (const Member& word : of.list()) words.push_back(whole_list(word));
  if (words.empty()) of.refuse("words");
  return words;
}

// [[[ids], bias], ...]: a dict of tuples is none in JSON.
std::vector<SequenceBias> biases(const Member& of) {
  std::vector<SequenceBias> all;
  for (const Member& each : of.list()) {
    const std::vector<Member> both = each.list();
    if (both.size() != 2 || !both[1].value().is_number_float()) each.refuse("ids, and a number with a point");
    all.push_back({whole_list(both[0]), both[1].number()});
  }
  if (all.empty()) of.refuse("ids with a number each");
  return all;
}

EarlyStopping early_stopping(const Member& of) {
  if (of.value() == "never") return EarlyStopping::never;
  return of.truth() ? EarlyStopping::yes : EarlyStopping::no;
}

std::vector<std::string> stop_strings(const Member& of) {
  return of.value().is_string() ? std::vector{of.text()} : of.texts();
}

struct Followed {
  const char* key;
  void (*read)(const Member& value, ModelInfo& info);
};
// The start is bos_token_id where there is no other: in this order.
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
    {"top_k", [](const Member& size, ModelInfo& info) { info.generation.top_k = size.whole(0); }},
    {"top_p", [](const Member& share, ModelInfo& info) { info.generation.top_p = share.number(); }},
    {"min_p", [](const Member& share, ModelInfo& info) { info.generation.min_p = share.number(); }},
    {"sequence_bias", [](const Member& of, ModelInfo& info) { info.generation.sequence_bias = biases(of); }},
    {"repetition_penalty", [](const Member& by, ModelInfo& info) { info.generation.repetition_penalty = by.number(); }},
    {"no_repeat_ngram_size",
     [](const Member& size, ModelInfo& info) { info.generation.no_repeat_ngram_size = size.whole(0); }},
    {"bad_words_ids", [](const Member& of, ModelInfo& info) { info.generation.bad_words_ids = bad_words(of); }},
    {"min_length", [](const Member& size, ModelInfo& info) { info.generation.min_length = size.whole(0); }},
    {"min_new_tokens", [](const Member& size, ModelInfo& info) { info.generation.min_new_tokens = size.whole(0); }},
    {"suppress_tokens",
     [](const Member& ids, ModelInfo& info) { info.generation.suppress_tokens = tokens_of(ids, info.vocabulary); }},
    {"begin_suppress_tokens",
     [](const Member& ids, ModelInfo& info) {
       info.generation.begin_suppress_tokens = tokens_of(ids, info.vocabulary);
     }},
    {"forced_bos_token_id",
     [](const Member& id, ModelInfo& info) { info.generation.forced_bos_token_id = id.whole(0); }},
    {"forced_eos_token_id", [](const Member& id, ModelInfo& info) { info.generation.forced_eos_token_id = id_of(id); }},
    {"num_beams", [](const Member& count, ModelInfo& info) { info.generation.num_beams = count.whole(1); }},
    {"length_penalty", [](const Member& power, ModelInfo& info) { info.generation.length_penalty = power.number(); }},
    {"early_stopping",
     [](const Member& when, ModelInfo& info) { info.generation.early_stopping = early_stopping(when); }},
    {"stop_strings", [](const Member& of, ModelInfo& info) { info.generation.stop_strings = stop_strings(of); }},
};

// Of a folder whose tokens are drawn.
void read_temperature(const Member& temperature, ModelInfo& info) {
  info.generation.temperature = temperature.number();
  if (!(*info.generation.temperature > 0)) temperature.refuse("a number above 0");
}

// What config.json has of it, which Transformers reads as its generation_config.json where there is none: its own keys.
bool is_of_generation(const std::string& key) {
  return key == "do_sample" || key == "temperature" || keys().at("values").contains(key) ||
         keys().at("drawn").contains(key);
}

// "num_beams 4", or of what is neither number nor truth, "constraints".
std::string named(std::string_view key, const json& value) {
  return value.is_number() || value.is_boolean() ? fmt::format("{} {}", key, value.dump()) : std::string(key);
}

}  // namespace

void read_generation(const Member& from, bool is_config, ModelInfo& info) {
  if (!from.value().is_object()) from.refuse("an object");
  info.end.clear();
  const auto follow = [&](const char* key, const auto& read) {
    const GenerationSettings before = info.generation;
    try {
      read();
      check_settings(info.generation, info.vocabulary);
    } catch (const Error&) {
      info.generation = before;
      info.not_followed.push_back(named(key, from[key].value()));
    }
  };
  for (const Followed& each : followed)
    if (from.given(each.key)) follow(each.key, [&] { each.read(from[each.key], info); });
  // What BART's oldest files say in place of forced_bos_token_id.
  const char* older = "force_bos_token_to_be_generated";
  if (is_config && from.given("bos_token_id") && from.given(older))
    follow(older, [&] {
      if (from[older].truth()) info.generation.forced_bos_token_id = from["bos_token_id"].whole(0);
    });
  bool draws = false;
  if (from.given("do_sample")) follow("do_sample", [&] { draws = from["do_sample"].truth(); });
  if (draws) {  // what is not said is as Transformers has it
    info.generation.temperature = 1;
    if (from.given("temperature")) follow("temperature", [&] { read_temperature(from["temperature"], info); });
    if (!from.given("top_k")) info.generation.top_k = 50;
  }
  if (draws && info.generation.num_beams.value_or(1) > 1) {  // which are drawn there
    info.generation.num_beams.reset();
    info.not_followed.push_back(named("num_beams", from["num_beams"].value()));
  }
  for (const auto& [key, value] : from.value().items()) {
    if (std::ranges::find(followed, key, &Followed::key) != std::end(followed)) continue;
    if (key == "do_sample" || key == "temperature") continue;
    if (changes_nothing(key, value, draws) || (is_config && !is_of_generation(key))) continue;
    info.not_followed.push_back(named(is_of_generation(key) ? key : quote(key), value));
  }
}

}  // namespace attend::inline v1::models
