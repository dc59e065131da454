// What the analyses of attend.Model share.
#include "analysis.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <filesystem>

namespace attend::python {

namespace {

const AnalysisBinding* last_binding = nullptr;

}  // namespace

AnalysisBinding::AnalysisBinding(Bind& bind) noexcept : bind_(bind), next_(last_binding) {
  last_binding = this;
}

void AnalysisBinding::bind_all(nb::module_& module, nb::class_<Loaded>& model) {
  for (const AnalysisBinding* each = last_binding; each; each = each->next_) each->bind_(module, model);
}

Analysed analysed(const Loaded& self, std::vector<std::int64_t> ids, std::vector<std::int64_t> decoder_ids) {
  Analysed of;
  of.model = self.name, of.path = self.path, of.tokenizer = self.known_tokenizer;
  (decoder_ids.empty() ? of.ids : of.encoder_ids) = std::move(ids);
  if (!decoder_ids.empty()) of.ids = std::move(decoder_ids);
  return of;
}

Analysed averaged_of(const Analysed& first, std::vector<std::string> names) {
  Analysed of = first;
  of.ids.clear(), of.corrupt.clear(), of.encoder_ids.clear();
  of.names = std::move(names);
  return of;
}

std::shared_ptr<const Tokenizer> tokenizer_of(const Analysed& x) {
  if (x.tokenizer || x.path.empty()) return x.tokenizer;
  const std::filesystem::path path = x.path;
  const bool folder = std::filesystem::is_directory(path);
  const auto has = [&](const char* file) { return std::filesystem::exists(path / file); };
  if (folder ? !has("tokenizer.json") && !has("source.spm") : !std::filesystem::exists(path)) return nullptr;
  return std::make_shared<const Tokenizer>(Model::load_tokenizer(path));
}

nb::tuple state_of(const Analysed& x) {
  const auto bytes = [](const std::string& of) { return nb::bytes(of.data(), of.size()); };  // of any encoding
  return nb::make_tuple(bytes(x.model), bytes(x.path), x.ids, x.corrupt, x.positions, x.encoder_ids, x.token, x.against,
                        x.what, x.estimate, x.heads, static_cast<int>(x.attention), x.names, x.first_row, x.of_label,
                        x.labels);
}

Analysed analysed_from(const nb::tuple& state) {
  using Ids = std::vector<std::int64_t>;
  using Token = std::optional<std::int64_t>;
  Analysed x;
  const auto text = [&](std::size_t n) {
    const auto bytes = nb::cast<nb::bytes>(state[n]);
    return std::string(bytes.c_str(), bytes.size());
  };
  x.model = text(0), x.path = text(1);
  x.ids = nb::cast<Ids>(state[2]), x.corrupt = nb::cast<Ids>(state[3]), x.positions = nb::cast<Ids>(state[4]);
  x.encoder_ids = nb::cast<Ids>(state[5]);
  x.token = nb::cast<Token>(state[6]), x.against = nb::cast<Token>(state[7]);
  x.what = nb::cast<std::string>(state[8]), x.estimate = nb::cast<bool>(state[9]);
  x.heads = nb::cast<std::vector<Head>>(state[10]), x.attention = static_cast<AttentionKind>(nb::cast<int>(state[11]));
  x.names = nb::cast<std::vector<std::string>>(state[12]), x.first_row = nb::cast<std::int64_t>(state[13]);
  x.of_label = nb::cast<bool>(state[14]), x.labels = nb::cast<std::vector<std::string>>(state[15]);
  return x;
}

nb::object results_of(const nb::list& found) {
  return nb::module_::import_("attend._analysis").attr("Results")(found);
}

ReadCaches::ReadCaches(const char* function, std::initializer_list<std::pair<const char*, nb::handle>> given,
                       std::size_t count) {
  nb::list different;
  const auto place_of = [&](nb::handle cache) -> std::ptrdiff_t {
    if (cache.is_none()) return -1;
    for (std::size_t n = 0; n < nb::len(different); ++n)
      if (different[n].is(cache)) return static_cast<std::ptrdiff_t>(n);
    different.append(cache);
    return static_cast<std::ptrdiff_t>(nb::len(different)) - 1;
  };
  for (const auto& [name, caches] : given) {
    std::vector<std::ptrdiff_t>& places = places_.emplace_back();
    for (std::size_t n = 0; n < count; ++n) {
      const nb::object each = of_each(function, name, caches, n, count);
      if (!each.is_none()) (void)in_list(function, each);  // TypeError for what is no cache
      places.push_back(place_of(each));
    }
  }
  caches_.emplace(function, different);
}

const ModelCache* ReadCaches::of(std::size_t argument, std::size_t text) const {
  const std::ptrdiff_t place = places_[argument][text];
  return place < 0 ? nullptr : caches_->get()[static_cast<std::size_t>(place)];
}

std::vector<Range> read_spans(const char* function, const char* name, nb::handle spans, std::int64_t count,
                              std::vector<std::string>& names) {
  constexpr const char* expected = "a dict of places and (begin, end) by name";
  const auto given = expect<nb::dict>(function, name, expected, spans);
  std::vector<Range> ranges;
  std::vector<std::string> own;
  for (const auto [key, value] : given) {
    own.push_back(expect<std::string>(function, name, expected, key));
    const std::string place = std::string(name) + "[" + own.back() + "]";
    const auto from_end = [&](std::int64_t at) { return at < 0 ? at + count : at; };
    if (PyIndex_Check(value.ptr())) {
      const std::int64_t at = from_end(expect<std::int64_t>(function, place.c_str(), whole_number, value));
      ranges.push_back({at, at + 1});
    } else {
      const auto [begin, end] = read_two(function, place.c_str(), "a place or (begin, end)", value);
      ranges.push_back({from_end(begin), from_end(end)});
    }
    if (ranges.back().begin < 0 || ranges.back().begin >= ranges.back().end || ranges.back().end > count)
      throw Error(ErrorCode::bad_value, function,
                  place + " has tokens " + std::to_string(ranges.back().begin) + " to " +
                      std::to_string(ranges.back().end) + ", expected a part of 0 to " + std::to_string(count));
  }
  if (!names.empty() && names != own)
    throw Error(ErrorCode::bad_value, function, std::string(name) + ": the texts' names differ");
  names = std::move(own);
  return ranges;
}

AttentionKind read_attention(const char* function, const std::string& name) {
  if (name == "self") return AttentionKind::self;
  if (name == "cross") return AttentionKind::cross;
  if (name == "encoder") return AttentionKind::encoder;
  throw Error(ErrorCode::bad_value, function, "attention is '" + name + "', expected 'self', 'cross' or 'encoder'");
}

std::int64_t read_answer(const char* function, const Loaded& self, const char* name, nb::handle given) {
  const std::optional<std::int64_t> id = self.read_token(function, name, given);
  if (!id) throw Error(ErrorCode::bad_value, function, std::string(name) + " is None, expected a token");
  return *id;
}

Tensor Found::tensor(const char* field) const {
  const nb::object array = result.attr(field);
  return Array(function.c_str(), field, array).view().clone();
}

void bind_analysis(nb::module_& m, nb::class_<Loaded>& model) {
  nb::class_<Analysed>(m, "_Analysed")
      .def("__getstate__", &state_of)
      .def("__setstate__", [](Analysed& self, const nb::tuple& state) { new (&self) Analysed(analysed_from(state)); });
  AnalysisBinding::bind_all(m, model);
}

}  // namespace attend::python
