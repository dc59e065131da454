// What analyses are asked about: a text, or several that go through the model together.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "attend/error.h"
#include "attend/models.h"
#include "core/message.h"

namespace attend::inline v1::analysis {

// What a model is asked about: ids, of an encoder-decoder those of its decoder's text, and types as ModelCall has them.
struct Text {
  std::span<const std::int64_t> ids, decoder_ids = {}, types = {};

  // Those that answers come after.
  std::span<const std::int64_t> answering() const { return decoder_ids.empty() ? ids : decoder_ids; }
};

// Throws bad_value, as Model::forward().
void check_text(const Text& text, const ModelInfo& info);

// Adds a text's types to those of the `count` rows before it, which stay none as long as no text has some.
void add_types(const Text& text, std::size_t count, std::vector<std::int64_t>& types);

// ---- What stands before a row ----

// The row from which on something is changed, counted from 0. Throws bad_value for what is no decoder alone.
std::int64_t first_row_of(std::string_view function, std::int64_t first_row, std::int64_t count, const ModelInfo& info);
// What is known of the tokens before a position. Throws bad_value for another text's.
ModelCache known_before(std::string_view function, const ModelCache& given, const Text& text, std::int64_t position);
// Of all of these; what is not known of a decoder's, or given is null, is computed.
ModelCache cache_before(std::string_view function, const Model& model, const Text& text, const ModelCache* given,
                        std::int64_t position);

// ---- Several ----

// A pass has no more rows, unless one text alone has: more at a time would not be faster. A layer's tensors of so many
// are some 64 MB where E is 576.
inline constexpr std::int64_t rows_at_once = 2048;

// body(), whose errors say which of several texts they are of.
void of_text(std::size_t text, std::size_t count, const std::function<void()>& body);

// Calls body(first, last) with runs whose sizes together are at most `most`, or which are one.
void for_each_run(std::span<const std::int64_t> sizes, std::int64_t most,
                  const std::function<void(std::size_t, std::size_t)>& body);
// With texts that go through the model together; an encoder-decoder's go alone.
void for_each_group(const Model& model, std::span<const Text> texts,
                    const std::function<void(std::size_t, std::size_t)>& body);
// What tells `progress` the share of all texts that is done where that of [first, last) is.
std::function<void(double)> share_of(const std::function<void(double)>& progress, std::size_t first, std::size_t last,
                                     std::size_t count);

// The options of each of `count` texts, where there are as many or one. Throws bad_value.
template <class Options>
std::vector<Options> for_each_text(std::string_view function, std::span<const Options> options, std::size_t count) {
  if (options.size() != 1 && options.size() != count)
    fail(ErrorCode::bad_value, function, "{} options for {} texts, expected one, or one for each", options.size(),
         count);
  if (options.size() == count) return {options.begin(), options.end()};
  return std::vector<Options>(count, options[0]);
}
// The texts of so many ids, with the options' decoder_ids and types.
template <class Options>
std::vector<Text> texts_of(std::span<const std::vector<std::int64_t>> ids, std::span<const Options> options) {
  std::vector<Text> texts;
  texts.reserve(ids.size());
  for (std::size_t n = 0; n < ids.size(); ++n) {
    texts.push_back({ids[n], options[n].decoder_ids});
    if constexpr (requires { options[n].types; }) texts.back().types = options[n].types;
  }
  return texts;
}

}  // namespace attend::inline v1::analysis
