// Where attention goes: attention_summary() and its relatives.
#include "attend/summary.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>

#include "array.h"
#include "attend/layers.h"
#include "bindings.h"
#include "call.h"
#include "layout.h"
#include "options.h"
#include "pickle.h"

namespace attend::python {

namespace {

// AttentionSummary, as arrays in the order of summary_statistics(); None for what is not there.
struct Summary {
  std::vector<nb::object> arrays;
};

// The arrays of one call.
struct SummaryCall {
  const char* function;
  Layout layout;
  Array q, k;
  OptionalArray lse, lse_low, key_sizes;

  View queries() const { return heads_first(layout, q.view()); }
  View keys() const { return heads_first(layout, k.view()); }
  nb::object array(const Tensor& tensor) const { return to_python(q.kind(), tensor); }

  Summary summarize(const AttentionOptions& options, std::int64_t top, const std::optional<MapSize>& map) const {
    const AttentionSummary s = call(function, [&] {
      return attention_summary(queries(), keys(), lse.view(), options,
                               {.lse_low = lse_low.view(), .top = top, .map = map, .key_sizes = key_sizes.view()});
    });
    Summary summary;
    for (const SummaryStatistic& statistic : summary_statistics()) {
      const Tensor* found = statistic.in(s);
      summary.arrays.push_back(found ? array(*found) : nb::none());
    }
    return summary;
  }
};

SummaryCall read(const char* function, Layout layout, nb::handle q, nb::handle k, nb::handle lse, nb::handle lse_low,
                 nb::handle key_sizes) {
  return {function,
          layout,
          {function, "q", q},
          {function, "k", k},
          {function, "lse", lse},
          {function, "lse_low", lse_low},
          {function, "key_sizes", key_sizes}};
}

MapSize read_map(const char* function, const char* name, nb::handle value) {
  const auto [rows, columns] = read_two(function, name, "(rows, columns)", value);
  return {rows, columns};
}
std::optional<MapSize> read_optional_map(const char* function, nb::handle value) {
  return value.is_none() ? std::nullopt : std::optional(read_map(function, "map", value));
}

// [P,2], an array or a sequence of pairs.
Tensor summary_read_pairs(const char* function, nb::handle object) {
  const nb::list list = read_list(function, "pairs", "(query, key) each", object);
  Tensor pairs({static_cast<std::int64_t>(nb::len(list)), 2}, DType::i64);
  auto* to = pairs.data<std::int64_t>();
  for (const nb::handle pair : list) {
    const auto [query, key] = read_two(function, "pairs", "(query, key) each", pair);
    *to++ = query, *to++ = key;
  }
  return pairs;
}

Summary summary_(nb::handle q, nb::handle k, nb::handle lse, std::string_view layout, nb::handle lse_low,
                 std::int64_t top, nb::handle map, nb::handle key_sizes, const nb::kwargs& keywords) {
  constexpr const char* function = "attention_summary";
  const SummaryCall call = read(function, read_layout(function, layout), q, k, lse, lse_low, key_sizes);
  return call.summarize(Options(function, keywords).get(), top, read_optional_map(function, map));
}

Summary summary_varlen(nb::handle q, nb::handle k, nb::handle lse, nb::handle cu_seqlens_q, nb::handle cu_seqlens_k,
                       nb::handle lse_low, std::int64_t top, nb::handle map, nb::handle key_sizes,
                       const nb::kwargs& keywords) {
  constexpr const char* function = "attention_summary_varlen";
  const SummaryCall call = read(function, Layout::heads_last, q, k, lse, lse_low, key_sizes);
  Options options(function, keywords);
  options.set_starts(cu_seqlens_q, cu_seqlens_k);
  return call.summarize(options.get(), top, read_optional_map(function, map));
}

nb::object weights_(nb::handle q, nb::handle k, nb::handle lse, std::string_view layout, nb::handle lse_low,
                    nb::handle queries, nb::handle keys, nb::handle pairs, nb::handle key_sizes,
                    const nb::kwargs& keywords) {
  constexpr const char* function = "attention_weights";
  const SummaryCall x = read(function, read_layout(function, layout), q, k, lse, lse_low, key_sizes);
  const Options options(function, keywords);
  if (pairs.is_none()) {
    const WeightsOptions part{x.lse_low.view(), read_range(function, "queries", queries),
                              read_range(function, "keys", keys), x.key_sizes.view()};
    return x.array(
        call(function, [&] { return attention_weights(x.queries(), x.keys(), x.lse.view(), options.get(), part); }));
  }
  if (!queries.is_none() || !keys.is_none()) {
    throw nb::value_error("attention_weights: expected queries and keys, or pairs, not both");
  }
  const Tensor list = summary_read_pairs(function, pairs);
  return x.array(call(function, [&] {
    return attention_weights_of(list, x.queries(), x.keys(), x.lse.view(), options.get(), x.lse_low.view(),
                                x.key_sizes.view());
  }));
}

nb::tuple map_(nb::handle q, nb::handle k, nb::handle lse, nb::handle blocks, std::string_view layout,
               nb::handle lse_low, nb::handle queries, nb::handle keys, nb::handle key_sizes,
               const nb::kwargs& keywords) {
  constexpr const char* function = "attention_map";
  const SummaryCall x = read(function, read_layout(function, layout), q, k, lse, lse_low, key_sizes);
  const Options options(function, keywords);
  const MapSize size = read_map(function, "blocks", blocks);
  const WeightsOptions part{x.lse_low.view(), read_range(function, "queries", queries),
                            read_range(function, "keys", keys), x.key_sizes.view()};
  const AttentionMap result =
      call(function, [&] { return attention_map(size, x.queries(), x.keys(), x.lse.view(), options.get(), part); });
  return nb::make_tuple(x.array(result.map), x.array(result.map_max));
}

std::vector<HeadScores> scores_(nb::handle q, nb::handle k, nb::handle lse, nb::handle tokens, std::string_view layout,
                                nb::handle lse_low, nb::handle key_sizes, const nb::kwargs& keywords) {
  constexpr const char* function = "head_scores";
  const SummaryCall x = read(function, read_layout(function, layout), q, k, lse, lse_low, key_sizes);
  const Options options(function, keywords);
  const Tensor ids = tokens.is_none() ? Tensor() : read_integers(function, "tokens", tokens);
  const std::optional<View> given = tokens.is_none() ? std::nullopt : std::optional(ids.view());
  return call(function, [&] {
    return head_scores(x.queries(), x.keys(), x.lse.view(), options.get(), given, x.lse_low.view(), x.key_sizes.view());
  });
}

AttentionPlan plan_summary_(nb::handle q, nb::handle k, nb::handle dtype, std::int64_t top, nb::handle map,
                            bool has_lse, const nb::kwargs& keywords) {
  constexpr const char* function = "plan_summary";
  const Options options(function, keywords);
  const nb::object given = dtype.is_none() ? nb::getattr(q, "dtype", nb::none()) : nb::borrow(dtype);
  const DType of = given.is_none() ? DType::f32 : read_dtype(function, given);
  const Dims queries = read_shape(function, "q", q), keys = read_shape(function, "k", k);
  const SummaryOptions wanted{.top = top, .map = read_optional_map(function, map)};
  return call(function, [&] { return plan_summary(queries, keys, of, options.get(), wanted, has_lse); });
}

std::string summary_describe(const HeadScores& s) {
  const auto number = [](double x) {
    std::string text = std::to_string(x);
    return text.substr(0, text.size() - 3);
  };
  std::string text =
      "HeadScores(batch=" + std::to_string(s.batch) + ", head=" + std::to_string(s.head) + ", '" + s.label_text() + "'";
  for (const HeadStatistic& statistic : head_statistics()) {
    const std::optional<double> score = statistic.of(s);
    if (!score) continue;
    text += ", " + std::string(statistic.name) + "=";
    text += statistic.decimals == 0 ? std::to_string(static_cast<std::int64_t>(*score)) : number(*score);
  }
  return text + ")";
}

nb::dict dict_of(const HeadKinds& excess) {
  nb::dict all;
  for (const std::string_view name : HeadKinds::names()) all[nb::str(name.data(), name.size())] = excess.of(name);
  return all;
}

nb::list label_list(const std::vector<HeadLabel>& labels) {
  nb::list list;
  for (const HeadLabel& label : labels) list.append(nb::make_tuple(label.name, label.value));
  return list;
}

// ---- Documentation ----

constexpr const char* summary_doc = R"(Where attention goes, in memory that grows with Tq + Tk instead of Tq * Tk.

q [B,H,Tq,D], k [B,Hkv,Tk,D] and the options are those of attention(). lse [B,H,Tq] is what attention() returned for them
with return_lse; None: it is computed first, without values. lse_low, from return_lse_low, makes weights exact where
scores are large; without it, rows whose abs(lse) is 64 or more are summed again.

top           how many of each row's largest weights
map           (R, C): also give the map in R x C blocks. Query i is in block row i * R // Tq, and keys in columns likewise
key_sizes     [B,H,Tk] in lse's dtype, 0 or more, such as attend.key_sizes(v, weight): also give what is carried, each
              weight times its key's size (Kobayashi et al. 2020)
layout        "bhtd", or "bthd" for q and k as [B,T,H,D]

The result's fields are of q's kind, one for each query head, and before dropout. A row that sees nothing has 0 and counts
in no mean. What a masked key holds reaches no number. A row of NaN is NaN. Raises what attention() raises.

>>> import numpy, attend
>>> q, k = numpy.random.default_rng(0).standard_normal((2, 1, 2, 500, 16), numpy.float32)
>>> s = attend.attention_summary(q, k, causal=True, top=3, map=(4, 4))
>>> s.top_keys.shape, s.entropy.shape, s.lift.shape, s.map.shape
((1, 2, 500, 3), (1, 2, 500), (1, 2, 500), (1, 2, 4, 4))
>>> numpy.allclose(s.map.sum(-1), 1, atol=1e-5)  # each row: where these queries look
True)";

constexpr const char* summary_varlen_doc =
    R"(attention_summary() over sequences that stand one after another, as attention_varlen() has them.

q [tokens,H,D], k [key tokens,Hkv,D], lse and lse_low [H,tokens]; cu_seqlens_q and cu_seqlens_k whole numbers
[sequences + 1] that begin with 0. Keys are numbered along k's first axis; map is [sequences,H,R,C], a shorter sequence in
its first rows and columns.

>>> import numpy, attend
>>> x = numpy.random.default_rng(0).standard_normal((5, 1, 4), numpy.float32)
>>> keys = attend.attention_summary_varlen(x, x, None, [0, 2, 5], [0, 2, 5], causal=True, top=1).top_keys[0, :, 0]
>>> bool((keys[2:] >= 2).all())  # the second sequence sees its own
True)";

constexpr const char* weights_doc = R"(Any part of the weights exactly, without the rest: [B,H,queries,keys].

q, k, lse, lse_low and the options are those of attention_summary(). queries and keys are (begin, end); None: all. Or give
pairs, whole numbers [P,2] with a query and a key each: the result is then [B,H,P]. Pairs that are not visible have 0.
The result is float32 (float64 for float64). With key_sizes [B,H,Tk] each weight is multiplied by its key's size, which
gives what is carried.

>>> import numpy, attend
>>> q, k = numpy.random.default_rng(0).standard_normal((2, 1, 2, 500, 16), numpy.float32)
>>> attend.attention_weights(q, k, causal=True, queries=(400, 410), keys=(0, 100)).shape
(1, 2, 10, 100)
>>> float(attend.attention_weights(q, k, causal=True, pairs=[(7, 7), (7, 8)])[0, 0, 1])  # a later key
0.0)";

constexpr const char* map_doc =
    R"(The map of a part of the weights in blocks=(R, C), counted from its first query and key: (map, map_max).

Both are [B,H,R,C]. map has each block's weights, summed over its keys and averaged over its queries that see a key; map_max
has its largest weight. A row of the map sums to what its queries give to the part's keys. The arguments, key_sizes too,
are those of attention_weights().

>>> import numpy, attend
>>> q, k = numpy.random.default_rng(0).standard_normal((2, 1, 2, 500, 16), numpy.float32)
>>> map, map_max = attend.attention_map(q, k, blocks=(8, 4), queries=(100, 200), keys=(0, 50))
>>> map.shape
(1, 2, 8, 4))";

constexpr const char* scores_doc =
    R"(What each head does: a list of HeadScores, one for each item of the batch and query head.

q, k, lse, lse_low and the options are those of attention_summary(). tokens are the ids of the keys' tokens, whole numbers
[Tk] or [B,Tk]; query i's own token is that of key i + offset. Scores need one sequence, so query_starts are refused. With
key_sizes [B,H,Tk], scores and labels are by norm: a weight then is the share of what the head's rows carry in the mean
(docs/inside.md).

>>> import numpy, attend
>>> q = numpy.zeros((1, 1, 50, 4), numpy.float32)
>>> bias = numpy.eye(50, k=-1, dtype=numpy.float32) * 50  # each query looks at the key before it
>>> attend.head_scores(q, q, causal=True, bias=bias)[0].label_text
'previous 1.00')";

constexpr const char* sizes_doc =
    R"(What a key carries per unit of weight, abs(W_O v_j), for each query head: [B,H,Tk] (Kobayashi et al. 2020).

v is [B,Hkv,Tk,Dv], with its bias. output_weight [E,H*Dv] is the weight of the projection that follows attention: that of a
torch.nn.Linear as it is, that of a Conv1D (GPT-2) transposed. Computed in float32, or in float64 for float64.

>>> import numpy, attend
>>> v = numpy.ones((1, 1, 3, 2), numpy.float32)
>>> attend.key_sizes(v, numpy.array([[3, 0, 0, 0], [0, 4, 0, 0]], numpy.float32))[0, :, 0].tolist()  # of two heads
[5.0, 0.0])";

nb::object key_sizes_(nb::handle v, nb::handle output_weight) {
  constexpr const char* function = "key_sizes";
  const Array values(function, "v", v), weight(function, "output_weight", output_weight);
  return to_python(values.kind(), call(function, [&] { return key_sizes(values.view(), weight.view()); }));
}

constexpr const char* summary_plan_doc =
    R"(How attention_summary() would compute arguments of these shapes, and with how much memory.

q and k are shapes or arrays; dtype (default: q's own, or float32) is a name or a dtype of NumPy or PyTorch; has_lse says
whether lse is given. Raises what attention_summary() raises.

>>> import attend
>>> shape = (1, 1, 131072, 64)
>>> attend.plan_summary(shape, shape, causal=True).scratch_bytes < 4 << 20
True)";

std::string summary_signature(const std::string& name, const std::string& arguments, bool key_lengths,
                              const std::string& result) {
  return "def " + name + "(" + arguments + options_signature(key_lengths) + ") -> " + result;
}

void bind_summary_class(nb::module_& m) {
  nb::class_<Summary> summary(m, "AttentionSummary",
                              "What attention_summary() gives. Fields that do not apply are None.");
  summary.def("__getstate__", [](const Summary& x) { return x.arrays; })
      .def("__setstate__", [](Summary& self, const std::vector<nb::object>& x) { new (&self) Summary{x}; });
  nb::list statistics;  // for recordings, which have them too: (name, doc)
  for (std::size_t n = 0; n < summary_statistics().size(); ++n) {
    const SummaryStatistic& statistic = summary_statistics()[n];
    const std::string name(statistic.name);
    const std::string doc = std::string(name_of(statistic.shape)).append(" ").append(statistic.meaning);
    summary.def_prop_ro(
        name.c_str(), [n](const Summary& self) { return self.arrays[n]; }, doc.c_str(),
        nb::sig(("def " + name + "(self) -> Any").c_str()));
    statistics.append(nb::make_tuple(name, doc));
  }
  m.attr("_summary_statistics") = nb::tuple(statistics);
}

constexpr const char* excess_doc =
    "by name: (score - u) / (m - u), where u is what uniform attention over the same keys would score and m the "
    "largest possible score; None where fewer than 8 queries see a key that counts, or m - u < 0.1";

constexpr const char* labels_doc =
    "a list of (name, excess), the largest first: 'sink', 'self', 'previous', 'duplicate' and 'induction' above 0.3, "
    "'local' above 0.5. If none is, it has one of ('broad' | 'focused' | 'other', effective keys). Empty where they "
    "are not known";

constexpr const char* unpickled =
    "head_scores() makes it again of its arrays; a Recording's heads() are an array, which can be";

void bind_without_sink(nb::module_& m) {
  nb::class_<WithoutSink> without(m, "WithoutSink", "What a head does with the weights that its sink leaves.");
  copies_are_itself(without);
  refuses_pickle(without, unpickled);
  without
      .def_prop_ro(
          "labels", [](const WithoutSink& s) { return label_list(s.labels); }, labels_doc)
      .def_prop_ro(
          "excess", [](const WithoutSink& s) { return dict_of(s.excess); }, excess_doc)
      .def_ro("effective_keys", &WithoutSink::effective_keys, "exp(mean entropy) of the rows, the sink not counted")
      .def_ro("keys_seen", &WithoutSink::keys_seen, "exp of the mean ln(keys that a query sees), the sink not counted")
      .def_ro("rows_left_out", &WithoutSink::rows_left_out, "how many queries keep less than 0.01 of their weights");
}

void bind_scores_class(nb::module_& m) {
  bind_without_sink(m);
  nb::class_<HeadScores> scores(
      m, "HeadScores",
      "What one head does. Means are over the queries that see a key. What is not known is None (docs/inside.md).");
  copies_are_itself(scores);
  refuses_pickle(scores, unpickled);
  scores.def_ro("batch", &HeadScores::batch, "the item of the batch")
      .def_ro("head", &HeadScores::head, "the query head")
      .def_ro("sink_key", &HeadScores::sink_key, "that key; -1: none")
      .def_ro("rows", &HeadScores::rows, "how many queries see a key")
      .def_ro("keys_seen", &HeadScores::keys_seen, "exp of the mean ln(keys that a query sees)")
      .def_prop_ro(
          "excess", [](const HeadScores& s) { return dict_of(s.excess); }, excess_doc)
      .def_prop_ro(
          "labels", [](const HeadScores& s) { return label_list(s.labels); }, labels_doc)
      .def_ro("without_sink", &HeadScores::without_sink, "a WithoutSink where the label 'sink' holds, else None")
      .def("has_label", &HeadScores::has_label, nb::arg("name"),
           "Whether this label is among the labels, or among those without the sink.")
      .def_prop_ro("label_text", &HeadScores::label_text, "the labels as text: 'sink .81; besides: induction .69'")
      .def("__repr__", &summary_describe);
  for (const HeadStatistic& statistic : head_statistics()) {
    if (statistic.decimals == 0) continue;
    const std::string name(statistic.name);
    const bool always = statistic.of({}).has_value();
    scores.def_prop_ro(
        name.c_str(), [&statistic](const HeadScores& self) { return statistic.of(self); },
        std::string(statistic.meaning).c_str(),
        nb::sig(("def " + name + "(self) -> float" + (always ? "" : " | None")).c_str()));
  }
}

}  // namespace

void bind_summary(nb::module_& m) {
  bind_summary_class(m);
  bind_scores_class(m);
  const std::string arrays = "q: Array, k: Array, lse: Array | None = None, *, ",
                    layout = "layout: Literal['bhtd', 'bthd'] = 'bhtd', ";
  const std::string low = "lse_low: Array | None = None, ",
                    wanted = "top: int = 8, map: tuple[int, int] | None = None, ",
                    sizes = "key_sizes: Array | None = None, ";
  const std::string part = "queries: tuple[int, int] | None = None, keys: tuple[int, int] | None = None, ";
  m.def("attention_summary", &summary_, nb::arg("q").none(), nb::arg("k").none(), nb::arg("lse") = nb::none(),
        nb::kw_only(), nb::arg("layout") = "bhtd", nb::arg("lse_low") = nb::none(), nb::arg("top") = 8,
        nb::arg("map") = nb::none(), nb::arg("key_sizes") = nb::none(), nb::arg("options"),
        nb::sig(summary_signature("attention_summary", arrays + layout + low + wanted + sizes, true, "AttentionSummary")
                    .c_str()),
        summary_doc);
  m.def("attention_summary_varlen", &summary_varlen, nb::arg("q").none(), nb::arg("k").none(), nb::arg("lse").none(),
        nb::arg("cu_seqlens_q").none(), nb::arg("cu_seqlens_k").none(), nb::kw_only(), nb::arg("lse_low") = nb::none(),
        nb::arg("top") = 8, nb::arg("map") = nb::none(), nb::arg("key_sizes") = nb::none(), nb::arg("options"),
        nb::sig(summary_signature(
                    "attention_summary_varlen",
                    "q: Array, k: Array, lse: Array | None, cu_seqlens_q: Array | Sequence[int], cu_seqlens_k: "
                    "Array | Sequence[int], *, " +
                        low + wanted + sizes,
                    false, "AttentionSummary")
                    .c_str()),
        summary_varlen_doc);
  m.def("attention_weights", &weights_, nb::arg("q").none(), nb::arg("k").none(), nb::arg("lse") = nb::none(),
        nb::kw_only(), nb::arg("layout") = "bhtd", nb::arg("lse_low") = nb::none(), nb::arg("queries") = nb::none(),
        nb::arg("keys") = nb::none(), nb::arg("pairs") = nb::none(), nb::arg("key_sizes") = nb::none(),
        nb::arg("options"),
        nb::sig(summary_signature(
                    "attention_weights",
                    arrays + layout + low + part + "pairs: Array | Sequence[Sequence[int]] | None = None, " + sizes,
                    true, "Any")
                    .c_str()),
        weights_doc);
  m.def("attention_map", &map_, nb::arg("q").none(), nb::arg("k").none(), nb::arg("lse") = nb::none(), nb::kw_only(),
        nb::arg("blocks").none(), nb::arg("layout") = "bhtd", nb::arg("lse_low") = nb::none(),
        nb::arg("queries") = nb::none(), nb::arg("keys") = nb::none(), nb::arg("key_sizes") = nb::none(),
        nb::arg("options"),
        nb::sig(summary_signature("attention_map", arrays + "blocks: tuple[int, int], " + layout + low + part + sizes,
                                  true, "tuple[Any, Any]")
                    .c_str()),
        map_doc);
  m.def("head_scores", &scores_, nb::arg("q").none(), nb::arg("k").none(), nb::arg("lse") = nb::none(), nb::kw_only(),
        nb::arg("tokens") = nb::none(), nb::arg("layout") = "bhtd", nb::arg("lse_low") = nb::none(),
        nb::arg("key_sizes") = nb::none(), nb::arg("options"),
        nb::sig(summary_signature("head_scores",
                                  arrays + "tokens: Array | Sequence[int] | None = None, " + layout + low + sizes, true,
                                  "list[HeadScores]")
                    .c_str()),
        scores_doc);
  m.def("key_sizes", &key_sizes_, nb::arg("v").none(), nb::arg("output_weight").none(),
        nb::sig("def key_sizes(v: Array, output_weight: Array) -> Any"), sizes_doc);
  m.def("plan_summary", &plan_summary_, nb::arg("q").none(), nb::arg("k").none(), nb::arg("dtype") = nb::none(),
        nb::kw_only(), nb::arg("top") = 8, nb::arg("map") = nb::none(), nb::arg("has_lse") = true, nb::arg("options"),
        nb::sig(summary_signature("plan_summary",
                                  "q: Array | Sequence[int], k: Array | Sequence[int], dtype: object = None, *, " +
                                      wanted + "has_lse: bool = True, ",
                                  true, "AttentionPlan")
                    .c_str()),
        summary_plan_doc);
}

}  // namespace attend::python
