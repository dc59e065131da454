// What analyses of a model share: what their results were of, which pictures name, and how these are looked at.
#pragma once

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "attend/analysis_look.h"
#include "call.h"
#include "model.h"
#include "picture.h"

namespace attend::python {

// Of each analysis, in its file: what of Model finds it, and how the result is looked at. bind_analysis() calls all of
// them.
class AnalysisBinding {
 public:
  using Bind = void(nb::module_& module, nb::class_<Loaded>& model);
  explicit AnalysisBinding(Bind& bind) noexcept;

  static void bind_all(nb::module_& module, nb::class_<Loaded>& model);

 private:
  Bind& bind_;
  const AnalysisBinding* next_;
};

struct Analysed {
  std::string model, path;
  std::vector<std::int64_t> ids, corrupt, positions, encoder_ids;
  std::optional<std::int64_t> token = {}, against = {};
  std::string what = {};         // of patch()
  bool estimate = false;         // likewise
  std::vector<Head> heads = {};  // of an ablation, taken out together
  AttentionKind attention = AttentionKind::self;
  std::vector<std::string> names = {};  // of spans
  std::int64_t first_row = 0;
  bool of_label = false;                            // token and against are of a task's head
  std::vector<std::string> labels = {};             // which they are numbers of; empty: tokens
  std::shared_ptr<const Tokenizer> tokenizer = {};  // where it was known already
};

// model.h's `self` and the text; of an encoder-decoder decoder_ids are what answers come after.
Analysed analysed(const Loaded& self, std::vector<std::int64_t> ids, std::vector<std::int64_t> decoder_ids);
// The same of an average over texts, whose tokens differ.
Analysed averaged_of(const Analysed& first, std::vector<std::string> names = {});
// The tokenizer beside the model; null where there is none.
std::shared_ptr<const Tokenizer> tokenizer_of(const Analysed& x);

// For pickle: all but the tokenizer, which is read again.
nb::tuple state_of(const Analysed& x);
Analysed analysed_from(const nb::tuple& state);

// ---- Several texts ----

// attend.Results
nb::object results_of(const nb::list& found);

// of(each, text, progress) of one text, or of several one after another, as attend.Results. each(name, given, many) is
// what the text is given of an argument, as of_each() has it.
template <class Of>
nb::object of_texts(const char* function, nb::handle ids, nb::handle progress, Of of) {
  const std::optional<nb::list> several = read_several(ids);
  const std::size_t count = several ? nb::len(*several) : 1;
  const std::function<void(double)> tell = progress_of(function, progress);
  nb::list all;
  for (std::size_t n = 0; n < count; ++n) {
    const auto each = [&](const char* name, nb::handle given, bool many = false) {
      return several ? of_each(function, name, given, n, count, many) : nb::borrow(given);
    };
    std::function<void(double)> told;
    if (tell) told = [&, n](double share) { tell((static_cast<double>(n) + share) / static_cast<double>(count)); };
    all.append(of(each, several ? nb::object((*several)[n]) : nb::borrow(ids), told));
  }
  return several ? results_of(all) : nb::object(all[0]);
}

// Caches that are read alone: one for all texts, which may begin alike, or a list with one of each, or None.
class ReadCaches {
 public:
  ReadCaches(const char* function, std::initializer_list<std::pair<const char*, nb::handle>> given, std::size_t count);
  // Of the argument with this number, as given.
  const ModelCache* of(std::size_t argument, std::size_t text) const;

 private:
  std::vector<std::vector<std::ptrdiff_t>> places_;  // -1: none
  std::optional<Caches> caches_;
};

// {"subject": (3, 5), "verb": 6} of a text of `count` tokens; each place may count from the end. Fills names, or throws
// where others stand there.
std::vector<Range> read_spans(const char* function, const char* name, nb::handle spans, std::int64_t count,
                              std::vector<std::string>& names);

AttentionKind read_attention(const char* function, const std::string& name);

// A token that must be given.
std::int64_t read_answer(const char* function, const Loaded& self, const char* name, nb::handle given);

using Text = std::optional<std::string>;

// make(AnalysisOf).
template <class Make>
auto with_names(const std::string& function, const Analysed& x, const Text& title, Make make) {
  return call(function.c_str(), [&] {
    const std::shared_ptr<const Tokenizer> tokenizer = tokenizer_of(x);
    return make(AnalysisOf{x.ids, x.corrupt, x.encoder_ids, tokenizer.get(), x.model, title, x.names, x.labels});
  });
}

// ---- Results that are NamedTuples of attend._analysis ----

// One of this class, which knows what it was found of.
template <class... Values>
nb::object found_as(const char* kind, const Analysed& of, Values&&... values) {
  nb::object found = nb::module_::import_("attend._analysis").attr(kind)(std::forward<Values>(values)...);
  found.attr("_of") = of;
  return found;
}

// One of them for one of its methods; of one that was made by hand, nothing is known.
struct Found {
  std::string kind, method;
  nb::handle result;
  std::string function = kind + "." + method;
  Analysed of = result.attr("_of").is_none() ? Analysed() : nb::cast<Analysed>(result.attr("_of"));

  Tensor tensor(const char* field) const;
};

// The class _KINDLook, whose functions the methods of the NamedTuple of this kind call. A Look is read from a Found,
// and has picture(), csv() and json(); picture() also takes what is Given, by these names.
template <class Look, class... Given, class... Names>
void bind_look(nb::module_& m, const std::string& kind, const Names&... names) {
  const auto picture = [kind](nb::handle result, const Given&... given, const Text& title) {
    const Found found{kind, "picture", result};
    const Look look(found);
    return with_names(found.function, found.of, title,
                      [&](const AnalysisOf& of) { return drawn(look.picture(of, given...)); });
  };
  const auto csv = [kind](nb::handle result) {
    const Found found{kind, "to_csv", result};
    const Look look(found);
    return with_names(found.function, found.of, {}, [&](const AnalysisOf& of) { return look.csv(of); });
  };
  const auto json = [kind](nb::handle result) {
    const Found found{kind, "to_json", result};
    const Look look(found);
    return call(found.function.c_str(), [&] { return look.json(); });
  };
  nb::class_<Look> look(m, ("_" + kind + "Look").c_str());
  look.def_static("picture", picture, nb::arg("found"), names..., nb::arg("title").none());
  look.def_static("csv", csv).def_static("json", json);
}

// The mean of results of this kind, its standard error and of how many texts; made(result, Analysed) is the NamedTuple.
template <class Look, class Made>
nb::tuple average_found(const std::string& kind, const nb::list& results, Made made) {
  std::vector<decltype(Look::x)> all;
  Analysed context;
  for (const nb::handle each : results) {
    const Found read{kind, "average", each};
    all.push_back(std::move(Look(read).x));
    context = averaged_of(read.of, read.of.names);
  }
  const auto of = call("Results.average", [&] { return average(all); });
  return nb::make_tuple(made(of.mean, context), made(of.standard_error, context), of.texts);
}

}  // namespace attend::python
