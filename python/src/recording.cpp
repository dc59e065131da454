// What attend.Recording and attend.transformers.record() are made of: Recorder and Recording as they are in C++.
#include "attend/recording.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "array.h"
#include "bindings.h"
#include "call.h"
#include "dtypes.h"
#include "layout.h"
#include "options.h"
#include "text.h"

namespace attend::python {

namespace {

constexpr const char* recording_name = "Recording";

// ---- Recorder ----

// A layer's call, without its arrays.
struct Call {
  std::string layer, kind;
  std::vector<std::int64_t> heads;

  RecordCall get() const { return {.layer = layer, .kind = kind, .heads = heads}; }
};

Recorder make_recorder(std::int64_t top, std::int64_t rows, std::int64_t columns, bool keep_qk, bool key_sizes,
                       std::int64_t budget, bool grows) {
  return call("record", [&] {
    return Recorder({.top = top,
                     .map = {rows, columns},
                     .keep_qk = keep_qk,
                     .key_sizes = key_sizes,
                     .budget = budget,
                     .grows = grows});
  });
}

void check(const Recorder& self, const std::string& layer, const std::string& kind,
           const std::vector<std::int64_t>& heads, nb::handle q, nb::handle k, const nb::kwargs& keywords) {
  constexpr const char* function = "record";
  const Call x{layer, kind, heads};
  const Array queries(function, "q", q), keys(function, "k", k);
  const Options options(function, keywords);
  call(function, [&] {
    self.check(x.get(), heads_first(Layout::heads_last, queries.view()).shape(),
               heads_first(Layout::heads_last, keys.view()).shape(), queries.view().dtype(), options.get());
  });
}

void add(Recorder& self, const std::string& layer, const std::string& kind, const std::vector<std::int64_t>& heads,
         nb::handle tokens, nb::handle key_sizes, nb::handle q, nb::handle k, nb::handle lse, nb::handle lse_low,
         const nb::kwargs& keywords) {
  constexpr const char* function = "record";
  const Call x{layer, kind, heads};
  const Array queries(function, "q", q), keys(function, "k", k), high(function, "lse", lse),
      low(function, "lse_low", lse_low);
  const OptionalArray ids(function, "tokens", tokens), sizes(function, "key_sizes", key_sizes);
  const Options options(function, keywords);
  call(function, [&] {
    RecordCall of = x.get();
    of.tokens = ids.view(), of.key_sizes = sizes.view();
    self.add(of, heads_first(Layout::heads_last, queries.view()), heads_first(Layout::heads_last, keys.view()),
             high.view(), low.view(), options.get());
  });
}

// ---- Recording ----

std::vector<std::string> names(const Recording& self) {
  std::vector<std::string> all;
  all.reserve(self.layers().size());
  for (const RecordedLayer& layer : self.layers()) all.push_back(layer.name);
  return all;
}

nb::dict layer_of(const Recording& self, std::int64_t number) {
  const RecordedLayer& x = self.at(number);
  nb::dict layer;
  layer["name"] = x.name, layer["kind"] = x.kind, layer["dtype"] = python_name(x.dtype);
  layer["batch"] = x.batch, layer["heads"] = x.heads, layer["kv_heads"] = x.kv_heads;
  layer["head_size"] = x.head_size, layer["queries"] = x.queries, layer["keys"] = x.keys, layer["top"] = x.top;
  layer["row_range"] = x.row_range, layer["column_range"] = x.column_range;
  layer["has_qk"] = x.has_qk, layer["has_key_sizes"] = x.has_key_sizes;
  // Of the statistics, those that it has not.
  nb::set missing;
  for (const SummaryStatistic& statistic : summary_statistics()) {
    if ((statistic.needs == SummaryStatistic::Needs::offset && !x.has_distance) ||
        (statistic.needs == SummaryStatistic::Needs::sinks && !x.has_sinks) ||
        (statistic.needs == SummaryStatistic::Needs::key_sizes && !x.has_key_sizes))
      missing.add(std::string(statistic.name));
  }
  if (!x.has_key_sizes) missing.add("key_sizes");
  layer["missing"] = missing;
  return layer;
}

nb::object numbers(const Recording& self, std::int64_t layer, const std::string& name) {
  const Tensor found = call(recording_name, [&] { return self.numbers(layer, name); });
  return to_python({}, found);
}

nb::object weights(const Recording& self, std::int64_t layer, std::int64_t item, std::int64_t head, nb::handle queries,
                   nb::handle keys, const std::string& by) {
  constexpr const char* function = "RecordedLayer.weights";
  const std::optional<Range> rows = read_range(function, "queries", queries),
                             columns = read_range(function, "keys", keys);
  const Tensor found = call(function, [&] { return self.weights(layer, item, head, rows, columns, weighed_by(by)); });
  return to_python({}, found);
}

// By the names of docs/json.md's trace.
nb::dict steps(const Recording& self, std::int64_t layer, std::int64_t item, std::int64_t head, nb::handle queries,
               nb::handle keys, nb::handle values) {
  constexpr const char* function = "RecordedLayer.steps";
  const OptionalArray given(function, "values", values);
  const StepsOptions part{read_range(function, "queries", queries), read_range(function, "keys", keys), given.view()};
  const HeadSteps found = call(function, [&] { return self.steps(layer, item, head, part); });
  nb::dict all;
  const auto add = [&](const char* name, const Tensor& tensor) { all[name] = to_python({}, tensor); };
  add("queries", found.queries), add("keys", found.keys);
  add("scores", found.scores), add("scaled_scores", found.scaled_scores), add("logits", found.logits);
  add("weights", found.weights), add("lse", found.lse), add("entropy", found.entropy);
  if (found.context) add("context", *found.context);
  return all;
}

nb::object ids_of(const std::optional<Tensor>& ids) {
  return ids ? to_python({}, *ids) : nb::none();
}

Recording recording_load(nb::handle path) {
  const std::string name = path_of(path);
  return call("Recording.load", [&] { return Recording::load(name); });
}

void bind_recorder(nb::module_& m) {
  nb::class_<Recorder>(m, "_Recorder")
      .def("check", &check)
      .def("add", &add, nb::arg("layer"), nb::arg("kind"), nb::arg("heads"), nb::arg("tokens").none(),
           nb::arg("key_sizes").none(), nb::arg("q"), nb::arg("k"), nb::arg("lse"), nb::arg("lse_low"),
           nb::arg("keywords"))
      .def("finish", [](Recorder& self) { return call("record", [&] { return self.finish(); }); })
      .def_prop_ro("bytes", &Recorder::bytes);
  m.def("_recorder", &make_recorder, nb::arg("top"), nb::arg("rows"), nb::arg("columns"), nb::arg("keep_qk"),
        nb::arg("key_sizes"), nb::arg("budget"), nb::arg("grows"));
}

}  // namespace

void bind_recording(nb::module_& m) {
  bind_recorder(m);
  m.def("_head_name", [](const std::string& layer, std::int64_t head) { return head_name(layer, head); });
  nb::class_<Recording>(m, "_Recording")
      .def_static("load", &recording_load)
      .def("save",
           [](const Recording& self, nb::handle path) {
             const std::string name = path_of(path);
             call("Recording.save", [&] { self.save(name); });
           })
      .def_rw("model", &Recording::model)
      .def_prop_ro("activations", [](const Recording& self) { return nb::str(name_of(self.activations).data()); })
      .def_rw("tokens", &Recording::tokens)
      .def_rw("decoder_tokens", &Recording::decoder_tokens)
      .def_prop_ro("ids", [](const Recording& self) { return ids_of(self.ids()); })
      .def_prop_ro("decoder_ids", [](const Recording& self) { return ids_of(self.decoder_ids()); })
      .def(
          "set_ids",
          [](Recording& self, nb::handle ids, nb::handle decoder_ids) {
            const OptionalArray array("record", "ids", ids);
            const OptionalArray decoder("record", "decoder_ids", decoder_ids);
            call("record", [&] { self.set_ids(array.view(), decoder.view()); });
          },
          nb::arg("ids").none(), nb::arg("decoder_ids").none())
      .def("__len__", [](const Recording& self) { return self.layers().size(); })
      .def_prop_ro("names", &names)
      .def("layer", &layer_of)
      .def("query_tokens", [](const Recording& self, std::int64_t layer) { return self.query_tokens(layer); })
      .def("key_tokens", [](const Recording& self, std::int64_t layer) { return self.key_tokens(layer); })
      .def("numbers", &numbers)
      .def(
          "scores",
          [](const Recording& self, std::int64_t layer, const std::string& by) {
            return call(recording_name, [&] { return self.scores(layer, weighed_by(by)); });
          },
          nb::arg("layer"), nb::arg("by") = "weight")
      .def("weights", &weights, nb::arg("layer"), nb::arg("item"), nb::arg("head"), nb::arg("queries").none(),
           nb::arg("keys").none(), nb::arg("by"))
      .def("steps", &steps, nb::arg("layer"), nb::arg("item"), nb::arg("head"), nb::arg("queries").none(),
           nb::arg("keys").none(), nb::arg("values").none());
}

}  // namespace attend::python
