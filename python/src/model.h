// attend.Model and what its calls are given, for the files that bind it.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "array.h"
#include "attend/models.h"
#include "attend/pages.h"
#include "text.h"

namespace attend::python {

std::span<const std::int64_t> numbers_of(const Tensor& integers);
std::vector<std::int64_t> list_of(const Tensor& integers);

// The object of a class of ours that an argument, or a place in it, is. Throws TypeError.
template <class T>
T& read_instance(const char* function, const std::string& place, const char* expected, nb::handle object) {
  T* found = nullptr;
  if (nb::try_cast(object, found) && found != nullptr) return *found;
  refuse(function, place, expected, object);
}

// `busy`: a call computes with it, on another thread where it is seen.
struct SequenceCache {
  ModelCache cache;
  bool busy = false;
};

// The caches of one call, which no other call may have meanwhile.
class Caches {
 public:
  Caches(const char* function, nb::handle caches);
  ~Caches() { release(); }
  Caches(const Caches&) = delete;
  Caches& operator=(const Caches&) = delete;

  std::span<ModelCache* const> get() const { return taken_; }

 private:
  void release();

  nb::list held_;
  std::vector<SequenceCache*> caches_;
  std::vector<ModelCache*> taken_;  // those of the first of caches_
};

// attend.Edit, as it was given.
struct GivenEdit {
  Edit edit;
  nb::object set;  // "zero", "mean" or an array
  nb::object rows = nb::none();
};

// "zero" or "mean"; throws ValueError, which says what was expected.
Edit::Set read_set(const char* function, const std::string& name, const char* expected);

// The edits of one call, and what they read.
class Edits {
 public:
  Edits(const char* function, nb::handle edits);
  std::span<const Edit> get() const { return edits_; }

 private:
  nb::list held_;
  std::deque<Array> values_;
  std::vector<Edit> edits_;
};

// attend.Model: of which folder or file, and the tokenizer beside it once something asked for it.
struct Loaded {
  Model model;
  std::string name;
  std::string path;
  std::optional<DType> given_dtype;
  nb::object from;  // the path or name
  mutable std::shared_ptr<const Tokenizer> known_tokenizer = {};

  const Tokenizer& tokenizer(const char* function) const;
  // A text's ids, or the ids themselves, [N].
  std::vector<std::int64_t> read_ids(const char* function, const char* argument, nb::handle ids,
                                     const char* expected = "a text, or whole numbers [N]") const;
  // Those of an encoder-decoder's decoder; none: not given.
  static std::vector<std::int64_t> read_decoder_ids(const char* function, nb::handle ids);
  // A text that is one token, an id, or None.
  std::optional<std::int64_t> read_token(const char* function, const char* argument, nb::handle token) const;

  nb::object encoder_states(nb::handle ids, nb::handle starts, nb::handle edits) const;
  nb::object forward(nb::handle ids, nb::handle starts, nb::handle types, nb::handle caches, nb::handle edits,
                     nb::handle decoder_ids, nb::handle decoder_starts) const;
  nb::object logits(nb::handle hidden) const;
  nb::object embed(nb::handle sentences, nb::handle prompt, nb::handle normalize, bool truncate, bool return_cut,
                   nb::handle progress, nb::handle starts, nb::handle types, nb::handle edits) const;
  SequenceCache cache(nb::handle dtype) const;
  nb::object generate(nb::handle ids, std::int64_t max_new_tokens, double temperature, std::int64_t top_k, double top_p,
                      std::uint64_t seed, nb::handle end, nb::handle on_token, nb::handle edits) const;
  nb::object generate_several(const nb::list& prompts, const GenerateOptions& options) const;
  nb::object record(nb::handle ids, nb::handle types, std::int64_t max_new_tokens, std::int64_t top, nb::handle map,
                    nb::handle keep, bool key_sizes, std::int64_t budget, nb::handle edits,
                    nb::handle decoder_ids) const;
  Page show(nb::handle text, bool live, nb::handle second, nb::handle why, nb::handle against, bool chat,
            std::optional<std::int64_t> budget, bool strict) const;
};

// Calls progress with the share that is done; what it raises ends the call.
std::function<void(double)> progress_of(const char* function, nb::handle progress);

void bind_edit(nb::module_& module);
void bind_analysis(nb::module_& module, nb::class_<Loaded>& model);

}  // namespace attend::python
