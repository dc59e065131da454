// Static embeddings (model2vec, sentence-transformers' StaticEmbedding): a row for each token, and no layers.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "models/backward.h"
#include "models/batch.h"
#include "models/layer_parts.h"
#include "models/loading.h"

namespace attend::inline v1::models {

// Who wrote a folder: the two make ids of a sentence in ways of their own.
enum class StaticKind : std::uint8_t { model2vec, static_embedding };

// A folder's table, as its files have it.
struct StaticFile {
  StaticKind kind = StaticKind::model2vec;
  Weights weights;                      // the table alone, and what is not known
  std::string name;                     // of the table
  std::vector<std::int64_t> rows = {};  // of the table, by token; empty: each token has its own
  std::vector<float> factors = {};      // of each token's row; empty: there are none
  std::int64_t vocabulary = 0, size = 0;
};

// None: the folder is of another model. inside: where its tensors are. Throws bad_file for a table that it speaks of
// and that can't be read.
std::optional<StaticFile> open_static(std::string_view function, const std::filesystem::path& folder,
                                      const std::filesystem::path& inside);

class StaticTable {
 public:
  StaticTable(Loading& loading, const StaticFile& file);

  ModelInfo info() const { return info_; }
  Tensor embed(const Batch& batch) const;  // [N,E], f32
  // The stream before the layers, of which there are none, is the last hidden states.
  static void run(const Batch&, Tensor&, std::int64_t, std::int64_t) {}
  static void backward(Backward&, Tensor&, std::int64_t, std::int64_t) {}
  static void embed_backward(Backward& pass, Tensor& dx) { pass.at(ModelPlace::embeddings, 0, dx); }
  static Tensor finish(Tensor x) { return x; }
  static Tensor finish_backward(const Backward&, const Tensor& d) { return d.clone(); }
  static LayerParts parts(std::size_t) { return {}; }

  // Of tokens, [tokens,E], f32.
  Tensor rows(std::span<const std::int64_t> ids) const;

 private:
  ModelInfo info_;
  Matrix table_;
  std::vector<std::int64_t> rows_;
  std::vector<float> factors_;
};

}  // namespace attend::inline v1::models
