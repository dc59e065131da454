#include "models/settings.h"

#include <cmath>
#include <limits>
#include <span>

#include "attend/error.h"
#include "core/message.h"
#include "core/utf8.h"
#include "io/file.h"

namespace attend::inline v1::models {

namespace {

constexpr const char* settings_function = "Model.generate";

void check_number(const char* name, const std::optional<double>& value, bool is_right, const char* expected) {
  if (value && !is_right)
    fail(ErrorCode::bad_value, settings_function, "{} is {}, expected {}", name, *value, expected);
}

void check_whole(const char* name, const std::optional<std::int64_t>& value, std::int64_t least) {
  if (value && *value < least)
    fail(ErrorCode::bad_value, settings_function, "{} is {}, expected at least {}", name, *value, least);
}

void check_id(const std::string& name, std::int64_t id, std::int64_t vocabulary) {
  if (id < 0 || id >= vocabulary)
    fail(ErrorCode::bad_value, settings_function, "{} is {}, expected 0 to {}", name, id, vocabulary - 1);
}

// least: how many of them there must be.
void check_id_list(const std::string& name, std::span<const std::int64_t> ids, std::size_t least,
                   std::int64_t vocabulary) {
  if (ids.size() < least) fail(ErrorCode::bad_value, settings_function, "{} has no ids", name);
  for (std::size_t n = 0; n < ids.size(); ++n) check_id(fmt::format("{}[{}]", name, n), ids[n], vocabulary);
}

void check_ids(const GenerationSettings& x, std::int64_t vocabulary) {
  if (x.forced_bos_token_id.value_or(-1) != -1) check_id("forced_bos_token_id", *x.forced_bos_token_id, vocabulary);
  if (x.forced_eos_token_id.value_or(-1) != -1) check_id("forced_eos_token_id", *x.forced_eos_token_id, vocabulary);
  if (x.suppress_tokens) check_id_list("suppress_tokens", *x.suppress_tokens, 0, vocabulary);
  if (x.begin_suppress_tokens) check_id_list("begin_suppress_tokens", *x.begin_suppress_tokens, 0, vocabulary);
  if (x.bad_words_ids)
    for (std::size_t n = 0; n < x.bad_words_ids->size(); ++n)
      check_id_list(fmt::format("bad_words_ids[{}]", n), (*x.bad_words_ids)[n], 1, vocabulary);
  if (!x.sequence_bias) return;
  for (std::size_t n = 0; n < x.sequence_bias->size(); ++n) {
    const auto& [ids, bias] = (*x.sequence_bias)[n];
    const std::string name = fmt::format("sequence_bias[{}]", n);
    check_id_list(name, ids, 1, vocabulary);
    if (!(bias < std::numeric_limits<double>::infinity()))
      fail(ErrorCode::bad_value, settings_function, "{} adds {}, expected a number or -inf", name, bias);
  }
}

void check_stop_strings(const GenerationSettings& x) {
  if (!x.stop_strings) return;
  for (std::size_t n = 0; n < x.stop_strings->size(); ++n) {
    const std::string& text = (*x.stop_strings)[n];
    if (text.empty()) fail(ErrorCode::bad_value, settings_function, "stop_strings[{}] is empty", n);
    if (!is_utf8(text))
      fail(ErrorCode::bad_value, settings_function, "stop_strings[{}] is {}, expected UTF-8", n, quote(text));
  }
}

// Beams are not drawn: of a caller who wants the one, the folder's other has no place.
void check_beams(const GenerationSettings& caller, Settings& settled) {
  if (settled.temperature > 0 && caller.temperature && caller.num_beams)
    fail(ErrorCode::bad_value, settings_function,
         "temperature is {} and num_beams is {}: beams are not drawn, expected one of the two", settled.temperature,
         settled.num_beams);
  if (settled.temperature > 0 && caller.temperature) {
    settled.num_beams = 1;
    return;
  }
  settled.temperature = 0;
  if (settled.num_return_sequences > settled.num_beams)
    fail(ErrorCode::bad_value, settings_function, "num_return_sequences is {}, expected at most num_beams, {}",
         settled.num_return_sequences, settled.num_beams);
}

}  // namespace

void check_settings(const GenerationSettings& x, std::int64_t vocabulary) {
  const auto within = [](const std::optional<double>& value, double low, double high) {
    return value.value_or(low) >= low && value.value_or(low) <= high;
  };
  constexpr double most = std::numeric_limits<double>::max();
  check_number("temperature", x.temperature, within(x.temperature, 0, most), "a number from 0");
  check_number("top_p", x.top_p, within(x.top_p, 0, 1) && x.top_p.value_or(1) > 0, "a number above 0, at most 1");
  check_number("min_p", x.min_p, within(x.min_p, 0, 1), "a number from 0 to 1");
  check_number("repetition_penalty", x.repetition_penalty,
               within(x.repetition_penalty, 0, most) && x.repetition_penalty.value_or(1) > 0, "a number above 0");
  check_whole("top_k", x.top_k, 0);
  check_whole("no_repeat_ngram_size", x.no_repeat_ngram_size, 0);
  check_whole("min_length", x.min_length, 0);
  check_whole("min_new_tokens", x.min_new_tokens, 0);
  check_whole("num_beams", x.num_beams, 1);
  check_whole("num_return_sequences", x.num_return_sequences, 1);
  check_number("length_penalty", x.length_penalty, within(x.length_penalty, -most, most), "a number");
  check_ids(x, vocabulary);
  check_stop_strings(x);
}

Settings settle(const GenerationSettings& caller, const GenerationSettings& folder) {
  Settings settled;
  const auto take = [&](auto setting, auto& to) {
    if (const auto& said = caller.*setting ? caller.*setting : folder.*setting) to = *said;
  };
  using Said = GenerationSettings;
  take(&Said::temperature, settled.temperature);
  take(&Said::top_k, settled.top_k);
  take(&Said::top_p, settled.top_p);
  take(&Said::min_p, settled.min_p);
  take(&Said::sequence_bias, settled.sequence_bias);
  take(&Said::repetition_penalty, settled.repetition_penalty);
  take(&Said::no_repeat_ngram_size, settled.no_repeat_ngram_size);
  take(&Said::bad_words_ids, settled.bad_words_ids);
  take(&Said::min_length, settled.min_length);
  take(&Said::min_new_tokens, settled.min_new_tokens);
  take(&Said::suppress_tokens, settled.suppress_tokens);
  take(&Said::begin_suppress_tokens, settled.begin_suppress_tokens);
  take(&Said::forced_bos_token_id, settled.forced_bos_token_id);
  take(&Said::forced_eos_token_id, settled.forced_eos_token_id);
  take(&Said::stop_strings, settled.stop_strings);
  take(&Said::num_beams, settled.num_beams);
  take(&Said::length_penalty, settled.length_penalty);
  take(&Said::early_stopping, settled.early_stopping);
  take(&Said::num_return_sequences, settled.num_return_sequences);
  if (settled.num_beams > 1) check_beams(caller, settled);
  return settled;
}

}  // namespace attend::inline v1::models
