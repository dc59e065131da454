#include "models/families/static_table.h"

#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "io/json_file.h"
#include "models/families/embeddings.h"
#include "models/sentences/modules.h"

namespace attend::inline v1::models {

namespace {

namespace fs = std::filesystem;

constexpr const char* mapping_name = "mapping";
constexpr const char* factors_name = "weights";

bool is_model2vec(const fs::path& inside) {
  if (!is_there(inside / "config.json")) return false;
  const JsonFile config = read_json("Model.load", inside / "config.json");
  const auto& root = config.value;
  return root.is_object() && root.contains("model_type") && root["model_type"] == "model2vec";
}

const View& table_of(const Weights& weights, const std::string& name) {
  const Matrix* found = weights.find(name);
  if (!found) fail_at(weights.place(), "{} is missing: a table with a row for each token", quote(name));
  const View& table = found->view;
  if (table.rank() != 2 || table.size(0) < 1 || table.size(1) < 1)
    fail_at(weights.place(), "{} has shape {}, expected [tokens,size]", quote(name), table.shape());
  if (!is_floating(table.dtype()) && table.dtype() != DType::i8)
    fail_at(weights.place(), "{} is {}, expected f32, f16, bf16, f64 or i8", quote(name), table.dtype());
  return table;
}

// The table's row of each token; empty: there is no mapping.
std::vector<std::int64_t> mapping_of(const Weights& weights, std::int64_t rows) {
  const Matrix* found = weights.find(mapping_name);
  if (!found) return {};
  const View& mapping = found->view;
  if (mapping.rank() != 1 || mapping.size(0) < 1 || mapping.dtype() != DType::i64)
    fail_at(weights.place(), "{} is {} {}, expected whole numbers [tokens]", quote(mapping_name), mapping.dtype(),
            mapping.shape());
  const std::int64_t* values = mapping.data<std::int64_t>();
  for (std::int64_t n = 0; n < mapping.size(0); ++n) {
    if (values[n] < 0 || values[n] >= rows)
      fail_at(weights.place(), "{}[{}] is {}, expected a row of the table, 0 to {}", quote(mapping_name), n, values[n],
              rows - 1);
  }
  return {values, values + mapping.size(0)};
}

std::vector<float> factors_of(const Weights& weights, std::int64_t vocabulary) {
  const Matrix* found = weights.find(factors_name);
  if (!found) return {};
  const View& factors = found->view;
  if (factors.shape() != Dims{vocabulary} || !is_floating(factors.dtype()))
    fail_at(weights.place(), "{} is {} {}, expected a number for each of {} tokens", quote(factors_name),
            factors.dtype(), factors.shape(), vocabulary);
  const Tensor numbers = factors.to(DType::f32);
  return {numbers.data<float>(), numbers.data<float>() + vocabulary};
}

}  // namespace

std::optional<StaticFile> open_static(std::string_view function, const fs::path& folder, const fs::path& inside) {
  const bool of_config = is_model2vec(inside);
  if (!of_config && first_module(folder) != "StaticEmbedding") return std::nullopt;
  const Weights file = Weights::open(function, inside);
  const bool has_own_name = !of_config && file.find("embedding.weight");
  StaticFile made{.weights = Weights(file.place()), .name = has_own_name ? "embedding.weight" : "embeddings"};
  // model2vec writes modules.json too, and does not write its type where it was given no configuration.
  if (has_own_name || !is_there(inside / "config.json")) made.kind = StaticKind::static_embedding;
  const View& table = table_of(file, made.name);
  if (!has_own_name) made.rows = mapping_of(file, table.size(0));
  made.vocabulary = made.rows.empty() ? table.size(0) : std::ssize(made.rows);
  made.size = table.size(1);
  if (!has_own_name) made.factors = factors_of(file, made.vocabulary);

  const auto owner = std::make_shared<const Weights>(file);
  const bool widens = table.dtype() == DType::f64 || table.dtype() == DType::i8;  // what no product is computed in
  for (const auto& [name, matrix] : file.all()) {
    if (name == made.name && widens) {
      made.weights.add(name, table.to(DType::f32));
    } else if (has_own_name || (name != mapping_name && name != factors_name)) {
      made.weights.add(name, matrix.view, owner);
    }
  }
  return made;
}

StaticTable::StaticTable(Loading& loading, const StaticFile& file) : rows_(file.rows), factors_(file.factors) {
  info_.type = file.kind == StaticKind::model2vec ? "model2vec" : "StaticEmbedding";
  info_.family = ModelFamily::static_table;
  info_.dtype = loading.dtype();
  info_.vocabulary = file.vocabulary;
  info_.embedding_size = file.size;
  info_.longest = std::numeric_limits<std::int64_t>::max();
  const View& table = file.weights.find(file.name)->view;
  table_ = loading.matrix(file.name, table.size(0), table.size(1));
}

Tensor StaticTable::rows(std::span<const std::int64_t> ids) const {
  std::vector<std::int64_t> places(ids.begin(), ids.end());
  if (!rows_.empty())
    for (std::int64_t& place : places) place = rows_[static_cast<std::size_t>(place)];
  const std::int64_t E = info_.embedding_size;
  Tensor x({std::ssize(ids), E});
  add_embeddings(x, table_, places);
  if (factors_.empty()) return x;
  for (std::size_t n = 0; n < ids.size(); ++n) {
    float* row = x.data<float>() + static_cast<std::int64_t>(n) * E;
    for (std::int64_t e = 0; e < E; ++e) row[e] *= factors_[static_cast<std::size_t>(ids[n])];
  }
  return x;
}

Tensor StaticTable::embed(const Batch& batch) const {
  Tensor x = rows(batch.ids);
  batch.at(ModelPlace::embeddings, 0, x);
  batch.embedded(x);
  return x;
}

}  // namespace attend::inline v1::models
