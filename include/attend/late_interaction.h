// Late interaction: a vector for each token, and passages scored by them (ColBERT, Khattab and Zaharia 2020,
// arXiv:2004.12832; ColBERTv2, Santhanam et al. 2022, arXiv:2112.01488).
//
//     const attend::Model model = attend::Model::load("colbertv2.0");
//     const auto query = attend::embed_tokens(model, "who wrote Faust?", {.role = attend::TextRole::query});
//     const auto passage = attend::embed_tokens(model, "Faust is a play by Goethe.");
//     fmt::print("{:.2f}\n", attend::max_sim(query.vectors, passage.vectors).score);
//
// Takes folders with ModelInfo::vectors VectorKind::token: of sentence-transformers' MultiVectorEncoder, PyLate and
// ColBERT. Results follow MultiVectorEncoder 6.2. rank() of attend/tasks.h takes them too. Functions throw bad_value
// for other models and texts without tokens, bad_file for settings that attend does not know, and what Model::forward()
// throws.
#pragma once

#ifdef ATTEND_WITHOUT_MODELS
#error "attend was built with ATTEND_MODELS=OFF: it has no late_interaction.h"
#endif

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attend/api.h"
#include "attend/models.h"
#include "attend/tensor.h"
#include "attend/vectors.h"

namespace attend::inline v1 {

// A text's role decides its marker, its longest length and which tokens have vectors. A query is filled up with masks,
// which have vectors; a document's punctuation has none (as the folder says).
enum class ATTEND_API TextRole : std::uint8_t { query, document };
// "query", "document"
ATTEND_API std::string_view name_of(TextRole role);

struct ATTEND_API TokenVectorOptions {
  TextRole role = TextRole::document;
  // Text before each text, instead of the role's prompt and marker: a name in ModelInfo::prompts, or the text itself.
  std::optional<std::string> prompt = {};
  // Most tokens of a text; none: as the folder says. A filled-up query has the folder's length.
  std::optional<std::int64_t> max_tokens = {};
  bool truncate = true;                       // false: longer texts are bad_value
  std::function<void(double)> progress = {};  // called with the share done, 0 to 1; may throw
};

// A text's tokens that have vectors.
struct ATTEND_API TokenVectors {
  Tensor vectors;                 // [tokens,ModelInfo::vector_size], f32, of length 1
  std::vector<std::int64_t> ids;  // [tokens]
  std::vector<Range> offsets;     // bytes of the text; 0 to 0 for markers, [CLS], [MASK]
  bool cut = false;               // the text was too long
};
// A text has the same bits alone and with others.
ATTEND_API std::vector<TokenVectors> embed_tokens(const Model& model, std::span<const std::string_view> texts,
                                                  const TokenVectorOptions& options = {});
ATTEND_API std::vector<TokenVectors> embed_tokens(const Model& model, std::span<const std::string> texts,
                                                  const TokenVectorOptions& options = {});
ATTEND_API TokenVectors embed_tokens(const Model& model, std::string_view text, const TokenVectorOptions& options = {});

// MaxSim: each query vector's largest product with a passage vector; the score is their sum.
struct ATTEND_API MaxSim {
  double score = 0;
  Tensor similarities;             // [Q,P], f32: all products
  std::vector<std::int64_t> best;  // [Q]: the passage vector for each query vector (ties: the first)
};
// query [Q,D], passage [P,D], f32, P at least 1. Throws bad_shape, bad_dtype.
ATTEND_API MaxSim max_sim(const View& query, const View& passage);

// Writes token vectors of many texts to two files: `name.npy` with the rows [tokens,size], f32, of one text after
// another, and `name.starts.npy` with [texts + 1], i64: where each begins, then the end. Both appear at commit().
// Memory: 8 bytes for each text.
class ATTEND_API TokenVectorWriter {
 public:
  // Throws bad_file, also for a path that does not end in .npy.
  TokenVectorWriter(const std::filesystem::path& path, std::int64_t size);

  void add(const View& vectors);  // [tokens,size], f32, of the next text. Throws bad_shape, bad_dtype, bad_file.
  std::int64_t texts() const { return static_cast<std::int64_t>(starts_.size()) - 1; }
  std::int64_t rows() const { return rows_.rows(); }
  void commit();

 private:
  std::filesystem::path starts_path_;
  VectorWriter rows_;
  std::vector<std::int64_t> starts_{0};
};

struct ATTEND_API NearText {
  std::int64_t text = 0;
  double score = 0;  // MaxSim
};

// Reads such files in place; they must not change meanwhile. Copies share them.
class ATTEND_API TokenVectorFile {
 public:
  // Whether a starts file is beside it.
  static bool is_one(const std::filesystem::path& path);
  // Throws bad_file, also if the two don't fit.
  explicit TokenVectorFile(const std::filesystem::path& path);

  std::int64_t texts() const { return starts_.size(0) - 1; }
  std::int64_t size() const { return rows_.rows().size(1); }
  View vectors(std::int64_t text) const;  // [tokens,size]. Throws bad_value.
  // The k texts with the highest scores for a query [Q,size], f32, descending (ties: the first). Exact: reads all.
  // Texts without vectors come last. Throws bad_shape, bad_dtype, bad_value for k below 1.
  std::vector<NearText> nearest(const View& query, std::int64_t k) const;

 private:
  VectorFile rows_;
  Tensor starts_;
};

}  // namespace attend::inline v1
