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
#include "attend/session.h"
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

// What Caches takes of a call over one text: its cache in a list, or None.
nb::object in_list(const char* function, nb::handle cache);

struct Loaded;
// Several texts, or lists of ids; none: it is one text, or ids.
std::optional<nb::list> read_several(nb::handle given);
// The ids of each; without `several`, of `given` alone.
std::vector<std::vector<std::int64_t>> read_texts(const Loaded& self, const char* function, const char* name,
                                                  nb::handle given, const std::optional<nb::list>& several);
// One for all of several texts, or one for each in a list. many: what one text has is a list itself.
nb::object of_each(const char* function, const char* name, nb::handle given, std::size_t n, std::size_t count,
                   bool many = false);

// attend.Knockout, as it was given.
struct GivenKnockout {
  Knockout knockout;
  nb::object rows = nb::none(), keys = nb::none();
};

// attend.Edit, as it was given.
struct GivenEdit {
  Edit edit;
  nb::object values = nb::none();  // an array, where there is one
  nb::object rows = nb::none();
};

// What the calls' keep= and observe= ask for.
// "mlp", or ("z", 23), of a list of these.
std::vector<Keep> read_keep(const char* function, const nb::list& given, const char* name = "keep");

class Watching {
 public:
  // name: of the argument that `keep` is.
  Watching(const char* function, const ModelInfo& info, nb::handle keep, nb::handle observe, const char* name = "keep");
  using Observer = std::function<void(ModelPlace, std::int64_t, const View&)>;
  Observer observer();  // none where nothing was asked for
  // With keep: (result, {as it was given: array}).
  nb::object with_kept(nb::object result);
  // The same of several texts: a list of what rows [starts[n], starts[n + 1]) of the result are, without copies, and of
  // what is kept; of the encoder's places by encoder_starts.
  nb::object with_kept(const nb::object& result, std::span<const std::int64_t> starts,
                       std::span<const std::int64_t> encoder_starts);

 private:
  const char* function_;
  nb::list keys_;
  std::vector<Keep> keep_;
  std::optional<Keeper> keeper_;
  nb::object observe_;
};
// A name of model_places(). Throws ValueError, which lists them.
ModelPlace place_of(const char* function, const std::string& at);
// "zero" or "mean"; throws ValueError, which says what was expected.
Edit::Set read_set(const char* function, const std::string& name, const char* expected);

// The edits of one call, and what they read.
class Edits {
 public:
  Edits(const char* function, nb::handle edits);
  // Of several texts, whose rows begin at `starts`: of all of them, or a list for each; those of the encoder's places
  // at `encoder_starts`.
  Edits(const char* function, nb::handle edits, std::span<const std::int64_t> starts,
        std::span<const std::int64_t> encoder_starts);
  std::span<const Edit> get() const { return edits_; }
  std::span<const Knockout> knockouts() const { return knockouts_; }

 private:
  void add(const char* function, nb::handle edits);
  nb::list held_;
  std::deque<Array> values_;
  std::vector<Edit> edits_;
  std::vector<Knockout> knockouts_;
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
};

// ids, or a text that has them, and what ModelCall says of them, read from Python.
class CallArguments {
 public:
  CallArguments(const Loaded& loaded, const char* function, nb::handle ids, nb::handle starts, nb::handle types,
                nb::handle caches, nb::handle edits, nb::handle decoder_ids = nb::none(),
                nb::handle decoder_starts = nb::none());

  std::span<const std::int64_t> ids() const { return ids_; }
  ModelCall call(Recorder* recorder = nullptr) const;
  std::span<const Edit> edits() const { return edits_.get(); }
  std::span<const Knockout> knockouts() const { return edits_.knockouts(); }
  const std::vector<std::int64_t>& decoder_ids() const { return decoder_ids_; }

 private:
  std::vector<std::int64_t> ids_;
  Caches caches_;
  Edits edits_;
  std::optional<Tensor> starts_, types_;
  std::vector<std::int64_t> decoder_ids_, decoder_starts_;
};
// What edits every call of a model takes, in a signature.
constexpr const char* given_edits = ", edits: Sequence[Edit | Knockout] | None = None";

// Calls progress with the share that is done; what it raises ends the call.
std::function<void(double)> progress_of(const char* function, nb::handle progress);

void bind_edit(nb::module_& module);
void bind_knockout(nb::module_& module);
void bind_model_info(nb::module_& module);
void bind_model_cache(nb::module_& module, nb::class_<Loaded>& model);
void bind_model_embed(nb::class_<Loaded>& model);
void bind_model_tasks(nb::class_<Loaded>& model);
void bind_model_vectors(nb::class_<Loaded>& model);
void bind_model_forward(nb::class_<Loaded>& model);
void bind_model_generate(nb::class_<Loaded>& model);
void bind_model_record(nb::class_<Loaded>& model);
void bind_steering(nb::module_& module, nb::class_<Loaded>& model);
void bind_jacobian_lens(nb::module_& module, nb::class_<Loaded>& model);
void bind_gradient(nb::class_<Loaded>& model);
void bind_features(nb::module_& module, nb::class_<Loaded>& model);
void bind_analysis(nb::module_& module, nb::class_<Loaded>& model);

}  // namespace attend::python
