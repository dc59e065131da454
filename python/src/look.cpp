// What attend.Recording draws.
#include "attend/look.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <cmath>

#include "array.h"
#include "bindings.h"
#include "picture.h"

namespace attend::python {

namespace {

using Title = std::optional<std::string>;

LookOptions options_of(const char* function, std::int64_t item, const std::string& by, const std::string& scale,
                       const Title& title, nb::handle queries = nb::none(), nb::handle keys = nb::none()) {
  LookOptions options{.item = item, .title = title};
  call(function, [&] { options.by = weighed_by(by), options.scale = picture_scale(scale); });
  options.queries = read_range(function, "queries", queries);
  options.keys = read_range(function, "keys", keys);
  return options;
}

Drawn head_picture_(const Recording& recording, std::int64_t layer, std::int64_t head, nb::handle queries,
                    nb::handle keys, std::int64_t item, const std::string& by, const std::string& scale,
                    const Title& title) {
  constexpr const char* function = "RecordedLayer.picture";
  const LookOptions options = options_of(function, item, by, scale, title, queries, keys);
  return draw(function, [&] { return head_picture(recording, layer, head, options); });
}

Drawn head_strip_(const Recording& recording, std::int64_t layer, std::int64_t head, const std::string& values,
                  std::int64_t item, const std::string& by, const std::string& scale, const Title& title) {
  constexpr const char* function = "RecordedLayer.strip";
  const LookOptions options = options_of(function, item, by, scale, title);
  return draw(function, [&] { return head_strip(recording, layer, head, values, options); });
}

Drawn head_links_(const Recording& recording, std::int64_t layer, std::int64_t head, nb::handle queries,
                  std::int64_t item, const std::string& by, const std::string& scale, const Title& title) {
  constexpr const char* function = "RecordedLayer.links";
  const LookOptions options = options_of(function, item, by, scale, title, queries);
  return draw(function, [&] { return head_links(recording, layer, head, options); });
}

Drawn recording_picture_(const Recording& recording, const std::vector<std::int64_t>& layers, std::int64_t item,
                         const std::string& by, const std::string& scale, const Title& title) {
  constexpr const char* function = "Recording.picture";
  const LookOptions options = options_of(function, item, by, scale, title);
  return draw(function, [&] { return recording_picture(recording, layers, options); });
}

// Of each its name, its labels and its links, (query, key, weight).
nb::list telling_heads_(const Recording& recording, std::int64_t item, std::optional<std::int64_t> layer,
                        std::optional<std::int64_t> head, std::size_t most, const std::string& by) {
  const auto found = call("Recording.telling_heads", [&] {
    return telling_heads(recording, heads_of(recording, item, layer, head, weighed_by(by)), most);
  });
  nb::list list;
  for (const TellingHead& telling : found) {
    nb::list links;
    for (const Link& link : telling.links) links.append(nb::make_tuple(link.query, link.key, link.weight));
    list.append(
        nb::make_tuple(telling.head.layer, name_of(recording, telling.head), telling.head.scores.label_text(), links));
  }
  return list;
}

// The fields of a head, behind its layer, number and labels: statistics and excesses, by name and NumPy's type.
nb::list head_fields() {
  nb::list fields;
  for (const HeadStatistic& statistic : head_statistics())
    fields.append(nb::make_tuple(statistic.name, statistic.decimals == 0 ? "i8" : "f8"));
  for (const std::string_view name : HeadKinds::names())
    fields.append(nb::make_tuple(std::string(name) + "_excess", "f8"));
  return fields;
}

// All of them of each head. What is not known is NaN, or -1.
nb::list heads_of_(const Recording& recording, std::int64_t item, const std::string& by) {
  const auto heads = call("Recording.heads", [&] { return heads_of(recording, item, {}, {}, weighed_by(by)); });
  nb::list list;
  for (const auto& [layer, scores, _] : heads) {
    nb::list row;
    row.append(recording.at(layer).name);
    row.append(scores.head), row.append(head_name(recording.at(layer).name, scores.head));
    row.append(scores.label_text());
    for (const HeadStatistic& statistic : head_statistics())
      row.append(statistic.of(scores).value_or(statistic.decimals == 0 ? -1 : NAN));
    for (const std::string_view name : HeadKinds::names()) row.append(scores.excess.of(name).value_or(NAN));
    list.append(nb::tuple(row));
  }
  return list;
}

}  // namespace

void bind_look(nb::module_& m) {
  m.attr("_head_fields") = head_fields();
  m.def("_heads", &heads_of_, nb::arg("recording"), nb::arg("item"), nb::arg("by"));
  m.def("_telling_heads", &telling_heads_, nb::arg("recording"), nb::arg("item"), nb::arg("layer").none(),
        nb::arg("head").none(), nb::arg("most"), nb::arg("by"));
  m.def(
      "_heads_json",
      [](const Recording& recording, std::int64_t item, const std::string& by) {
        return call("Recording.to_json",
                    [&] { return heads_json(recording, item, heads_of(recording, item, {}, {}, weighed_by(by))); });
      },
      nb::arg("recording"), nb::arg("item"), nb::arg("by"));
  m.def(
      "_heads_csv",
      [](const Recording& recording, std::int64_t item, const std::string& by) {
        return call("Recording.to_csv",
                    [&] { return heads_csv(recording, heads_of(recording, item, {}, {}, weighed_by(by))); });
      },
      nb::arg("recording"), nb::arg("item"), nb::arg("by"));
  m.def("_head_picture", &head_picture_, nb::arg("recording"), nb::arg("layer"), nb::arg("head"),
        nb::arg("queries").none(), nb::arg("keys").none(), nb::arg("item"), nb::arg("by"), nb::arg("scale"),
        nb::arg("title").none());
  m.def("_head_strip", &head_strip_, nb::arg("recording"), nb::arg("layer"), nb::arg("head"), nb::arg("values"),
        nb::arg("item"), nb::arg("by"), nb::arg("scale"), nb::arg("title").none());
  m.def("_head_links", &head_links_, nb::arg("recording"), nb::arg("layer"), nb::arg("head"), nb::arg("queries").none(),
        nb::arg("item"), nb::arg("by"), nb::arg("scale"), nb::arg("title").none());
  m.def("_recording_picture", &recording_picture_, nb::arg("recording"), nb::arg("layers"), nb::arg("item"),
        nb::arg("by"), nb::arg("scale"), nb::arg("title").none());
}

}  // namespace attend::python
