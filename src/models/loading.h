// The way from a model's tensors to its layers.
#pragma once

#include <deque>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attend/layers.h"
#include "io/json_member.h"
#include "models/output.h"
#include "models/weights.h"

namespace attend::inline v1::models {

// Takes tensors by name and shape. A family is built twice: for the first time of layers of one number, while what is
// wrong with the file is noted, so that one message can name all of it; then in earnest. Matrices stay where they are
// if they have the model's dtype.
//
// Nothing is made, and no loop runs, as often as a number of the configuration says and nothing else: by the second
// time the tensors have confirmed the sizes, and what they can't confirm goes through check_made().
class Loading {
 public:
  // prefix: what stands before every name in files of a model with a task's head; it may be missing. dtype: that is
  // computed in; none: bf16 where all matrices are, f32 otherwise. widens: quantized matrices become that, too; else
  // products are of them as they are. activations: of the layers; int8 makes their weights Q8_0 where their rows are
  // whole blocks, and computes in f32: what is quantized has no products of another dtype.
  Loading(Weights weights, std::string prefix, std::optional<DType> dtype, bool widens = false,
          Activations activations = Activations::exact);

  DType dtype() const { return dtype_; }
  Activations activations() const { return activations_; }
  // Whether this is the first time: until it is over, a size is what the configuration says and nothing more.
  bool checking() const { return checking_; }
  // Whether the file has a tensor of that name.
  bool has(const std::string& name) const { return weights_.find(prefix_ + name) != nullptr; }

  // One whose rows are read, and which an output layer may share.
  Matrix matrix(const std::string& name, std::int64_t rows, std::int64_t columns);
  // One whose numbers are read: it is not quantized.
  View table(const std::string& name, std::int64_t rows, std::int64_t columns);
  Linear linear(const std::string& name, std::int64_t in, std::int64_t out, bool bias = true);
  std::vector<Linear> linears(const std::string& at, const std::vector<std::string>& names, std::int64_t in,
                              const std::vector<std::int64_t>& outs, bool bias);
  // Layers whose weights are the rows of one, one after another.
  std::vector<Linear> linear_rows(const std::string& name, std::int64_t in, const std::vector<std::int64_t>& outs,
                                  bool bias = false);
  // GPT-2's Conv1D, whose weight is [in,out].
  Linear linear_in_out(const std::string& name, std::int64_t in, std::int64_t out);
  LayerNorm layer_norm(const std::string& name, std::int64_t size, double eps, bool bias = true);
  // One without a weight and a bias.
  LayerNorm plain_layer_norm(std::int64_t size, double eps) const;
  // offset is added to the weight.
  RmsNorm rms_norm(const std::string& name, std::int64_t size, double eps, float offset = 0);
  // The output layer, lm_head.weight, which has no prefix and no bias. Tied, it is words, the embeddings of that name,
  // which some files have twice; where the two differ it is its own, as Transformers has it. None: a bare model's file,
  // where no name has a prefix, lacks it. older: what files may call it instead. bias: the name of one [1,out] that may
  // be there.
  std::optional<Output> head(const std::string& embeddings, const Matrix& words, std::int64_t in, std::int64_t out,
                             bool tied, const char* older = nullptr, const char* bias = nullptr);
  // The output layer of a head for masked words: its own weight, or where the file has none the embeddings, and its
  // bias, which some files have under the name of `other_bias`.
  Linear words_output(const std::string& name, const Matrix& words, std::int64_t in, std::int64_t out, bool bias,
                      const char* other_bias, bool tied);
  // read(), of tensors outside of the model, before whose names no prefix stands.
  template <class Read>
  auto outside(Read read) {
    const std::string own = std::exchange(prefix_, "");
    auto made = read();
    prefix_ = own;
    return made;
  }
  // Whether there is a tensor of that whole name, outside of the model.
  bool has_outside(std::string_view name) const { return weights_.find(name) != nullptr; }
  // The model is bare: a task's head reads its hidden states, and head() gives no output layer.
  void has_task() { has_task_ = true; }
  // Other names under which files have that tensor too, or instead. Where two differ, that is one more problem.
  void has_copies(std::initializer_list<const char*> copies, const std::string& of);
  // A table that is made, of a size that no tensor confirms and that `said` says. Throws bad_file, at `said`, for one
  // of more numbers than the weights have together, unless it is small.
  void check_made(const Member& said, std::int64_t rows, std::int64_t columns) const;
  // Positions by sines and cosines (Vaswani et al. 2017), which files may have or not. said: the number of rows.
  View sines(const std::string& name, const Member& said, std::int64_t columns);

  // Tensors that files have besides and that are not computed with: whose names begin, or end, so.
  void ignore_beginning(std::string_view begin) { beginnings_.emplace_back(begin); }
  void ignore_ending(std::string_view end) { endings_.emplace_back(end); }
  // A head's behind the model, whose names begin so: one that it was trained with on text alone, or a task's.
  void ignore_head(std::string_view begin, bool of_task) { heads_.push_back({std::string(begin), of_task}); }

  // Between the two: throws bad_file for all that is missing, of another shape or left over.
  void check();

  // What was ignored of heads, after check(); a task's first of all.
  struct IgnoredHead {
    std::string begin;  // of its tensors' names
    bool of_task = false;
  };
  const std::optional<IgnoredHead>& ignored_head() const { return ignored_head_; }

  // What the layers borrow: as long as it is kept, it stays where it is.
  struct Kept {
    Weights weights;
    std::deque<Tensor> made;  // in another dtype than the file has them in
  };
  Kept keep() { return {std::move(weights_), std::move(made_)}; }
  std::int64_t parameters() const { return parameters_; }
  // The bytes of the tensors by what the file has them in, "f32" or "Q4_K".
  const std::map<std::string_view, std::int64_t>& formats() const { return formats_; }
  // Of the matrices, as they are computed with.
  std::int64_t weight_bytes() const { return weight_bytes_; }

 private:
  const Matrix* find(const std::string& name);
  Matrix take(const std::string& name, const Dims& shape);
  View take_row(const std::string& name, std::int64_t size);
  Matrix take_matrix(const std::string& name, std::int64_t rows, std::int64_t columns, bool widen);
  bool stays(const Matrix& matrix, bool widen) const;
  // Whether layers of so many inputs have weights that are made Q8_0.
  bool rounds(std::int64_t in) const { return activations_ == Activations::int8 && are_q8_0_rows(in); }
  // The weight [out,in] of a layer; turned: the file has [in,out].
  Matrix take_weight(const std::string& name, std::int64_t out, std::int64_t in, bool turned = false);
  // The same of a matrix that was taken.
  Matrix as_weight(const std::string& name, const Matrix& matrix);
  Linear layer(const Matrix& weight, const std::optional<View>& bias = std::nullopt) const;
  bool is_ignored(const std::string& name);
  [[noreturn]] void fail_for_problems();

  Weights weights_;
  std::string prefix_;
  DType dtype_ = DType::f32;
  Activations activations_ = Activations::exact;
  bool checking_ = true, widens_ = false, has_task_ = false;
  std::set<std::string, std::less<>> taken_;
  std::vector<std::string> beginnings_, endings_, problems_;
  std::vector<IgnoredHead> heads_;
  std::optional<IgnoredHead> ignored_head_;
  std::map<std::string, std::string> found_as_;  // of what is there under a copy's name alone
  std::int64_t parameters_ = 0, weight_bytes_ = 0;
  std::map<std::string_view, std::int64_t> formats_;
  std::deque<Tensor> made_;
  std::int64_t numbers_ = 0;  // of all the file's tensors
};

// What files of older programs call a tensor; empty: the same.
std::string older_name(const std::string& name);

// Family(loading, config), and then what read_more(family) reads besides.
template <class Family, class ReadMore>
Family build(Loading& loading, const Member& config, ReadMore read_more) {
  {
    const Family trial(loading, config);
    read_more(trial);
  }
  loading.check();
  Family family(loading, config);
  read_more(family);
  return family;
}

}  // namespace attend::inline v1::models
