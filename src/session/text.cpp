// Texts to ids, and ids to words.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "attend/session.h"
#include "core/message.h"
#include "models/growing.h"

namespace attend::inline v1 {

Encoding encode(const Model& model, std::string_view text, const TextOptions& options) {
  const Tokenizer& tokenizer = model.tokenizer();
  const bool special = options.special && model.info().family != ModelFamily::static_table;  // as embed() has it
  const auto ids_of = [&] {
    if (options.chat) return tokenizer.encode(tokenizer.chat(std::array{Message{"user", std::string(text)}}), false);
    return options.second ? tokenizer.encode_pair(text, *options.second, special) : tokenizer.encode(text, special);
  };
  return models::embedded(ids_of(), tokenizer, model.info());
}

void check_tokenizer(const Model& model, std::string_view path) {
  const std::int64_t tokens = model.tokenizer().size(), vocabulary = model.info().vocabulary;
  if (tokens > vocabulary)
    fail(ErrorCode::bad_file, "",
         "{}: the tokenizer has {} tokens, and the model embeds {}: they don't belong together", path, tokens,
         vocabulary);
}

std::vector<std::int64_t> first_decoder_ids(const ModelInfo& info) {
  return models::first_decoder_ids(info);
}

std::vector<NextToken> likeliest(const Model& model, const View& logits, std::int64_t count) {
  const Tensor all = logits.to(DType::f64);
  const double* row = all.data<double>();
  std::vector<std::int64_t> ids(static_cast<std::size_t>(all.count()));
  std::iota(ids.begin(), ids.end(), 0);
  const auto end = ids.begin() + std::clamp<std::int64_t>(count, 1, all.count());
  const auto likelier = [&](std::int64_t a, std::int64_t b) { return row[a] != row[b] ? row[a] > row[b] : a < b; };
  std::partial_sort(ids.begin(), end, ids.end(), likelier);
  const double largest = row[ids[0]];
  const double sum =
      std::accumulate(row, row + all.count(), 0.0, [&](double s, double x) { return s + std::exp(x - largest); });
  std::vector<NextToken> found;
  for (auto id = ids.begin(); id != end; ++id)
    found.push_back({*id, model.tokenizer().text(*id).value_or(""), std::exp(row[*id] - largest) / sum});
  return found;
}

double cosine(const View& a, const View& b) {
  const Tensor x = a.to(DType::f32), y = b.to(DType::f32);
  if (x.count() != y.count())
    fail(ErrorCode::bad_shape, "cosine", "vectors of {} and {} numbers, expected equal numbers", x.count(), y.count());
  const auto dot = [](const Tensor& of, const Tensor& by) {
    return std::inner_product(of.data<float>(), of.data<float>() + of.count(), by.data<float>(), 0.0);
  };
  const double lengths = std::sqrt(dot(x, x) * dot(y, y));
  return lengths > 0 ? dot(x, y) / lengths : 0;
}

}  // namespace attend::inline v1
