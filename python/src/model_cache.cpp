// attend.ModelCache.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <string>

#include "call.h"
#include "dtypes.h"
#include "model.h"
#include "pickle.h"

namespace attend::python {

namespace {

// The cache, where no call computes with it. Throws ValueError.
ModelCache& idle(const char* function, SequenceCache& self) {
  if (self.busy) throw Error(ErrorCode::bad_value, function, "another call computes with this cache");
  return self.cache;
}

SequenceCache cache(const Loaded& self, nb::handle dtype) {
  constexpr const char* function = "Model.cache";
  std::optional<DType> wanted;
  if (!dtype.is_none()) wanted = read_dtype(function, dtype, {DType::f32, DType::bf16, DType::i8});
  return call(function, [&] { return SequenceCache{self.model.cache(wanted)}; });
}

constexpr const char* cache_doc =
    R"(The keys and values of one sequence in every layer of a decoder: Model.cache() makes it.

len() is the number of tokens in it. fork() shares the blocks that are full instead of copying them.)";

constexpr const char* cache_method_doc = R"(An empty ModelCache for one sequence; ValueError for encoders.

dtype: None for the model's dtype, or int8 (attend.KvCache says what that changes).)";

}  // namespace

nb::object in_list(const char* function, nb::handle cache) {
  if (cache.is_none()) return nb::none();
  read_instance<SequenceCache>(function, "cache", "a ModelCache", cache);
  nb::list one;
  one.append(cache);
  return one;
}

Caches::Caches(const char* function, nb::handle caches) {
  if (caches.is_none()) return;
  held_ = read_list(function, "caches", "a list of ModelCache", caches);
  for (const nb::handle each : held_) {
    const std::string place = "caches[" + std::to_string(caches_.size()) + "]";
    caches_.push_back(&read_instance<SequenceCache>(function, place, "a ModelCache", each));
  }
  for (SequenceCache* cache : caches_) {
    if (cache->busy) {
      release();
      throw Error(ErrorCode::bad_value, function, "caches: one is given twice, or another call computes with it");
    }
    cache->busy = true;
    taken_.push_back(&cache->cache);
  }
}

void Caches::release() {
  for (std::size_t i = 0; i < taken_.size(); ++i) caches_[i]->busy = false;
  taken_.clear();
}

void bind_model_cache(nb::module_& m, nb::class_<Loaded>& model) {
  const auto fork = [](SequenceCache& self) {
    ModelCache& cache = idle("ModelCache.fork", self);
    return call("ModelCache.fork", [&] { return SequenceCache{cache}; });
  };
  constexpr const char* fork_doc = "A cache with the same tokens. Neither sees what is added to the other later.";
  nb::class_<SequenceCache> of_model(m, "ModelCache", cache_doc);
  refuses_pickle(of_model, "it belongs to a model in this process: forward() of its ids fills another");
  of_model.def("__len__", [](const SequenceCache& self) { return self.cache.length(); })
      .def(
          "truncate",
          [](SequenceCache& self, std::int64_t length) {
            ModelCache& cache = idle("ModelCache.truncate", self);
            call("ModelCache.truncate", [&] { cache.truncate(length); });
          },
          nb::arg("length"), "Forget the tokens from length on.")
      .def("fork", fork, fork_doc)
      .def("__copy__", fork)
      .def(
          "__deepcopy__", [fork](SequenceCache& self, nb::handle) { return fork(self); }, nb::arg("memo"))
      .def("__repr__",
           [](const SequenceCache& self) { return "ModelCache(" + std::to_string(self.cache.length()) + " tokens)"; });
  model.def("cache", &cache, nb::arg("dtype") = nb::none(),
            nb::sig("def cache(self, dtype: object = None) -> ModelCache"), cache_method_doc);
}

}  // namespace attend::python
