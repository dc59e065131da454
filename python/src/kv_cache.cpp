// Keys and values of a growing sequence.
#include "attend/kv_cache.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "array.h"
#include "attend/summary.h"
#include "bindings.h"
#include "call.h"
#include "kv_cache.h"
#include "options.h"
#include "pickle.h"
#include "text.h"

namespace attend::python {

namespace {

// keys: a KvCache, or pointers to some.
template <class Keys>
nb::object attend_over(const char* function, const Keys& keys, nb::handle q, bool return_lse, bool return_lse_low,
                       const nb::kwargs& keywords) {
  const Array queries(function, "q", q);
  const Options options(function, keywords);
  const AttentionResult result = call(
      function, [&] { return attend::attention(queries.view(), keys, options.get(), {.lse_low = return_lse_low}); });
  const auto array = [&](const Tensor& tensor) { return to_python(queries.kind(), tensor); };
  if (return_lse_low) return nb::make_tuple(array(result.out), array(result.lse), array(*result.lse_low));
  return return_lse ? nb::object(nb::make_tuple(array(result.out), array(result.lse))) : array(result.out);
}

// The cache, and what kind of arrays it was fed with.
struct Cache {
  KvCache cache;
  Kind kind = {};

  void append(nb::handle k, nb::handle v) {
    constexpr const char* function = "KvCache.append";
    const Array keys(function, "k", k), values(function, "v", v);
    call(function, [&] { cache.append(keys.view(), values.view()); });
    kind = keys.kind();
  }

  nb::object attention(nb::handle q, bool return_lse, bool return_lse_low, const nb::kwargs& keywords) const {
    return attend_over("KvCache.attention", cache, q, return_lse, return_lse_low, keywords);
  }

  nb::object weights(nb::handle q, nb::handle lse, nb::handle lse_low, nb::handle queries, nb::handle keys,
                     nb::handle key_sizes, const nb::kwargs& keywords) const {
    constexpr const char* function = "KvCache.attention_weights";
    const Array rows(function, "q", q);
    const OptionalArray high(function, "lse", lse), low(function, "lse_low", lse_low),
        sizes(function, "key_sizes", key_sizes);
    const Options options(function, keywords);
    const WeightsOptions part{low.view(), read_range(function, "queries", queries), read_range(function, "keys", keys),
                              sizes.view()};
    return to_python(rows.kind(), call(function, [&] {
                       return attend::attention_weights(rows.view(), cache, high.view(), options.get(), part);
                     }));
  }

  std::string describe() const {
    return "KvCache(batch=" + std::to_string(cache.batch()) + ", heads=" + std::to_string(cache.heads()) +
           ", d_k=" + std::to_string(cache.d_k()) + ", d_v=" + std::to_string(cache.d_v()) + ", dtype='" +
           python_name(cache.dtype()) + "', length=" + std::to_string(cache.length()) + ")";
  }
};

constexpr const char* kv_cache_class_doc = R"(Keys [B,Hkv,T,D] and values [B,Hkv,T,Dv] whose T grows, for decoding.

Appending never moves what is there, and forks share it. dtype is float32, bfloat16, float16 or int8. int8 keeps each row
of a head as whole numbers from -127 to 127 and a float32 scale, the row's largest magnitude / 127. This takes half of
bfloat16's memory and time, and keeps each element to within half a scale. keys() and values() then give float32, queries
are float32, bfloat16 or float16, and a row with NaN or infinity is NaN. Raises ValueError for a size below 1 and
TypeError for another dtype.

>>> import numpy, attend
>>> cache = attend.KvCache(batch=1, heads=2, d_k=8, d_v=8)
>>> x = numpy.ones((1, 2, 3, 8), numpy.float32)
>>> cache.append(x, x)
>>> len(cache), cache.attention(x[:, :, :1], causal=True).shape
(3, (1, 2, 1, 8)))";

constexpr const char* kv_cache_signature =
    "def __init__(self, batch: int, heads: int, d_k: int, d_v: int, dtype: object = 'float32') -> None";

void kv_cache_construct(Cache* self, const nb::args& args, const nb::kwargs& keywords) {
  const nb::list given = constructed_with("KvCache", kv_cache_signature, args, keywords);
  const auto size = [&](std::size_t n, const char* name) {
    return expect<std::int64_t>("KvCache", name, whole_number, given[n]);
  };
  const DType dtype = read_dtype("KvCache", given[4], {DType::f32, DType::bf16, DType::f16, DType::i8});
  new (self) Cache{KvCache(size(0, "batch"), size(1, "heads"), size(2, "d_k"), size(3, "d_v"), dtype)};
}

constexpr const char* attention_doc =
    R"(attention() of q [B,H,Tq,D] over the cache's keys and values; q in the cache's dtype (int8: any but float64).

Where causal, window or alibi_slopes need an offset and none is given, it is "bottom_right": the queries are the last Tq
positions. The bits are those of attention() over the same keys in one array.)";

constexpr const char* kv_cache_weights_doc =
    R"(attend.attention_weights() of q [B,H,Tq,D] over the cache's keys, read in place: [B,H,queries,keys].

lse and lse_low [B,H,Tq] are what the cache's attention() returned for the same options; None: they are computed first.
queries and keys are (begin, end); None: all. The bits are those over the same keys in one array, except for int8, whose
logits are those of attention().

>>> import numpy, attend
>>> x = numpy.random.default_rng(0).standard_normal((1, 2, 300, 8), numpy.float32)
>>> cache = attend.KvCache(batch=1, heads=2, d_k=8, d_v=8)
>>> cache.append(x, x)
>>> row = cache.attention_weights(x[:, :, -1:], causal=True)  # of the last token
>>> row.shape, bool(numpy.allclose(row.sum(-1), 1))
((1, 2, 1, 300), True))";

}  // namespace

bool are_caches(nb::handle x) {
  return nb::isinstance<nb::list>(x) || nb::isinstance<nb::tuple>(x);
}

nb::object attention_of_caches(nb::handle q, nb::handle caches, bool return_lse, bool return_lse_low,
                               const nb::kwargs& keywords) {
  const nb::tuple held(nb::borrow(caches));  // a list may lose them meanwhile
  std::vector<const KvCache*> list;
  for (const nb::handle each : held) {
    const Cache* cache = nullptr;
    if (!nb::try_cast(each, cache) || cache == nullptr) {
      const std::string place = "attention: caches[" + std::to_string(list.size()) + "] is ";
      throw nb::type_error((place + nb::type_name(each.type()).c_str() + ", expected a KvCache").c_str());
    }
    list.push_back(&cache->cache);
  }
  return attend_over("attention", list, q, return_lse, return_lse_low, keywords);
}

void bind_kv_cache(nb::module_& m) {
  nb::class_<Cache> cache(m, "KvCache", kv_cache_class_doc);
  refuses_pickle(
      cache,
      "it would bring all that it shares with its forks; keys() and values() are arrays, and append() takes them");
  const auto whole = [](const Cache& self) { return Cache{self.cache.fork(self.cache.length()), self.kind}; };
  cache.def("__init__", &kv_cache_construct, nb::sig(kv_cache_signature))
      .def("__copy__", whole)
      .def(
          "__deepcopy__", [whole](const Cache& self, nb::handle) { return whole(self); }, nb::arg("memo"))
      .def("append", &Cache::append, nb::arg("k").none(), nb::arg("v").none(),
           nb::sig("def append(self, k: Array, v: Array) -> None"),
           "Add k [B,Hkv,T,D] and v [B,Hkv,T,Dv], any strides and floating-point dtype. If it raises, nothing was "
           "added.")
      .def(
          "truncate", [](Cache& self, std::int64_t length) { self.cache.truncate(length); }, nb::arg("length"),
          "Forget the positions from length on.")
      .def(
          "fork",
          [](const Cache& self, std::int64_t length) {
            return Cache{self.cache.fork(length), self.kind};
          },
          nb::arg("length"),
          "A cache of the first length positions, which shares their memory. Neither cache sees what is done to the "
          "other later.")
      .def("attention", &Cache::attention, nb::arg("q").none(), nb::kw_only(), nb::arg("return_lse") = false,
           nb::arg("return_lse_low") = false, nb::arg("options"),
           nb::sig(signature_with_lse("attention", "self, q: ArrayT, *, " + options_signature()).c_str()),
           attention_doc)
      .def("attention_weights", &Cache::weights, nb::arg("q").none(), nb::arg("lse") = nb::none(), nb::kw_only(),
           nb::arg("lse_low") = nb::none(), nb::arg("queries") = nb::none(), nb::arg("keys") = nb::none(),
           nb::arg("key_sizes") = nb::none(), nb::arg("options"),
           nb::sig(("def attention_weights(self, q: Array, lse: Array | None = None, *, lse_low: Array | None = None, "
                    "queries: tuple[int, int] | None = None, keys: tuple[int, int] | None = None, "
                    "key_sizes: Array | None = None, " +
                    options_signature() + ") -> Any")
                       .c_str()),
           kv_cache_weights_doc)
      .def(
          "keys", [](const Cache& self) { return to_python(self.kind, self.cache.keys()); },
          "A copy [B,Hkv,length,D], as the kind of array that was appended.", nb::sig("def keys(self) -> Any"))
      .def(
          "values", [](const Cache& self) { return to_python(self.kind, self.cache.values()); },
          "A copy [B,Hkv,length,Dv].", nb::sig("def values(self) -> Any"))
      .def("__len__", [](const Cache& self) { return self.cache.length(); })
      .def_prop_ro("batch", [](const Cache& self) { return self.cache.batch(); })
      .def_prop_ro("heads", [](const Cache& self) { return self.cache.heads(); })
      .def_prop_ro("d_k", [](const Cache& self) { return self.cache.d_k(); })
      .def_prop_ro("d_v", [](const Cache& self) { return self.cache.d_v(); })
      .def_prop_ro("dtype", [](const Cache& self) { return python_name(self.cache.dtype()); })
      .def("__repr__", &Cache::describe);
}

}  // namespace attend::python
