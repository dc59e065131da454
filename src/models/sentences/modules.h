// What the files of sentence-transformers say about a folder's model: how it makes vectors of sentences.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "attend/layers.h"
#include "io/json_member.h"
#include "models/sentences/text_rules.h"

namespace attend::inline v1::models {

// What is made of the hidden states of a sentence's tokens.
enum class PoolingMode : std::uint8_t {
  cls,            // the first one's
  max,            // the largest of each dimension
  mean,           //
  mean_sqrt_len,  // the sum over the square root of how many there are
  weighted_mean,  // weighted by the token's place, from 1
  last_token,
};

// As sentence-transformers calls them.
inline constexpr std::pair<std::string_view, PoolingMode> pooling_modes[] = {
    {"cls", PoolingMode::cls},
    {"max", PoolingMode::max},
    {"mean", PoolingMode::mean},
    {"mean_sqrt_len_tokens", PoolingMode::mean_sqrt_len},
    {"weightedmean", PoolingMode::weighted_mean},
    {"lasttoken", PoolingMode::last_token},
};

inline constexpr std::size_t most_pooling_modes = 16;
struct Pooling {
  std::vector<PoolingMode> modes = {PoolingMode::mean};  // side by side
  bool includes_prompt = true;

  // Of a sequence of hidden states [count,E], the first `prompt` of which are a prompt's, to `out`, [modes * E].
  void pool(const float* rows, std::int64_t count, std::int64_t prompt, std::int64_t E, float* out) const;
  // Of sequences that begin at `starts`: [sequences,modes * E].
  Tensor pooled(const Tensor& hidden, std::span<const std::int64_t> starts, std::int64_t prompt) const;
};

// What may follow it, each from vectors [N,in] to [N,out].
struct DenseModule {
  Linear linear;
  Activation function = Activation::tanh;
  bool adds_input = false;              // after the function
  std::optional<Linear> residual = {};  // brings the input to the output's size
};
// Of torch.nn.
inline constexpr std::pair<std::string_view, Activation> dense_functions[] = {
    {"Identity", Activation::linear}, {"Tanh", Activation::tanh}, {"Sigmoid", Activation::sigmoid},
    {"ReLU", Activation::relu},       {"GELU", Activation::gelu}, {"SiLU", Activation::silu}};
struct NormalizeModule {};
using SentenceModule = std::variant<DenseModule, LayerNorm, NormalizeModule>;

Tensor passed(const SentenceModule& module, Tensor x);

// How a sentence becomes ids where the model is a static table: nothing is added around it, and where it has no tokens
// its vector is the mean of none.
struct StaticText {
  std::int64_t cut_before = std::numeric_limits<std::int64_t>::max();  // tokens that the tokenizer itself leaves
  // As model2vec does it: without the token that stands for what is unknown, and of a long sentence only so many
  // characters as max_tokens have that are as long as the vocabulary's median.
  bool model2vec = false;
  std::optional<std::string> unknown = {};
};

struct SentenceModules {
  Pooling pooling = {};
  std::vector<SentenceModule> after = {};
  std::optional<std::int64_t> dimensions = {};  // so many of a vector's are kept
  std::int64_t vector_size = 0;
  TextRules texts = {};
  std::optional<StaticText> of_table = {};

  // hidden [tokens,E] of sequences that begin at `starts` -> [sequences,vector_size]. normalize: true, to length 1;
  // false, without the folder's last Normalize; none: as the folder says.
  Tensor vectors(const Tensor& hidden, std::span<const std::int64_t> starts, std::int64_t prompt,
                 std::optional<bool> normalize) const;
  // d [vector_size], the gradient of the vector of one sequence of hidden states [N,E], as the folder says -> [N,E].
  Tensor input_gradient(const Tensor& hidden, const Tensor& d) const;
};

// What modules.json and the files that it names say. config: the model's own. E: its hidden states'; longest: tokens
// that it takes. A folder without them: the mean, of a ForCausalLM the last token's. Throws bad_file, naming file and
// key, for what is not known here.
SentenceModules read_sentences(const std::filesystem::path& folder, const Member& config, std::int64_t E,
                               std::int64_t longest);
// The same of a static table of rows [E]. inside: where its tokenizer is.
SentenceModules read_static_sentences(const std::filesystem::path& folder, const std::filesystem::path& inside,
                                      bool model2vec, std::int64_t E);
// The same of a model of which no such file speaks.
SentenceModules plain_sentences(const Member& config, std::int64_t E, std::int64_t longest);

// Where a folder's config.json is: of sentence-transformers' first versions in a folder that modules.json names.
std::filesystem::path transformer_folder(const std::filesystem::path& folder);
// The class of the first module that modules.json lists; "": there is none, or it can't be read.
std::string first_module(const std::filesystem::path& folder);

}  // namespace attend::inline v1::models
