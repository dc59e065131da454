#include "analysis/texts.h"

#include <algorithm>

#include "core/from_end.h"
#include "models/model.h"

namespace attend::inline v1::analysis {

namespace {

// Throws bad_value for another text's.
void check_held(std::string_view function, std::string_view name, std::span<const std::int64_t> held,
                std::span<const std::int64_t> ids) {
  for (std::size_t n = 0; n < std::min(held.size(), ids.size()); ++n) {
    if (held[n] != ids[n])
      fail(ErrorCode::bad_value, function, "the cache holds another text: its id {} is {}, {} has {}", n, held[n], name,
           ids[n]);
  }
}

}  // namespace

void check_text(const Text& text, const ModelInfo& info) {
  if (info.encoder_decoder()) {
    models::encoder_batch_of(text.ids, {.types = text.types}, info);
    models::decoder_batch_of({.decoder_ids = text.decoder_ids}, info);
  } else {
    models::batch_of(text.ids, {.types = text.types, .decoder_ids = text.decoder_ids}, info);
  }
}

void add_types(const Text& text, std::size_t count, std::vector<std::int64_t>& types) {
  if (types.empty() && text.types.empty()) return;
  types.resize(count);
  types.insert(types.end(), text.types.begin(), text.types.end());
  types.resize(count + text.ids.size());
}

std::int64_t first_row_of(std::string_view function, std::int64_t first_row, std::int64_t count,
                          const ModelInfo& info) {
  if (!info.decoder() || info.encoder_decoder())
    fail(ErrorCode::bad_value, function, "first_row needs a decoder-only model, the model is of type {}", info.type);
  return from_end(function, "first_row is", first_row, count);
}

ModelCache known_before(std::string_view function, const ModelCache& given, const Text& text, std::int64_t position) {
  const std::vector<std::int64_t>&held = ModelAccess::ids(given), &encoder = ModelAccess::encoder_ids(given);
  check_held(function, text.decoder_ids.empty() ? "ids" : "decoder_ids", held, text.answering());
  check_held(function, "ids", encoder, text.ids);
  if (!encoder.empty() && encoder.size() != text.ids.size())
    fail(ErrorCode::bad_value, function, "the cache holds another text: it has {} tokens, ids has {}", encoder.size(),
         text.ids.size());
  ModelCache cache = given;
  cache.truncate(std::min<std::int64_t>(std::ssize(held), position));
  return cache;
}

ModelCache cache_before(std::string_view function, const Model& model, const Text& text, const ModelCache* given,
                        std::int64_t position) {
  ModelCache cache = given ? known_before(function, *given, text, position) : model.cache();
  ModelCache* const caches[] = {&cache};
  if (const std::int64_t held = cache.length(); held < position)
    model.forward(text.ids.subspan(static_cast<std::size_t>(held), static_cast<std::size_t>(position - held)),
                  {.caches = caches});
  return cache;
}

void of_text(std::size_t text, std::size_t count, const std::function<void()>& body) {
  if (count == 1) return body();
  try {
    body();
  } catch (const Error& error) {
    fail(error.code(), error.function(), "texts[{}]: {}", text, error.detail());
  }
}

void for_each_run(std::span<const std::int64_t> sizes, std::int64_t most,
                  const std::function<void(std::size_t, std::size_t)>& body) {
  for (std::size_t first = 0, last = 0; first < sizes.size(); first = last) {
    std::int64_t sum = 0;
    for (; last < sizes.size() && (last == first || sum + sizes[last] <= most); ++last) sum += sizes[last];
    body(first, last);
  }
}

void for_each_group(const Model& model, std::span<const Text> texts,
                    const std::function<void(std::size_t, std::size_t)>& body) {
  std::vector<std::int64_t> sizes;
  sizes.reserve(texts.size());
  for (const Text& text : texts) sizes.push_back(model.info().encoder_decoder() ? rows_at_once : std::ssize(text.ids));
  for_each_run(sizes, rows_at_once, body);
}

std::function<void(double)> share_of(const std::function<void(double)>& progress, std::size_t first, std::size_t last,
                                     std::size_t count) {
  if (!progress) return {};
  return [&progress, first, size = last - first, count](double share) {
    progress((static_cast<double>(first) + share * static_cast<double>(size)) / static_cast<double>(count));
  };
}

}  // namespace attend::inline v1::analysis
