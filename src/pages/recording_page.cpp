#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>

#include "core/base64.h"
#include "core/message.h"
#include "core/utf8.h"
#include "html/page.h"
#include "io/gzip.h"
#include "look/maps.h"
#include "pages/pages.h"
#include "picture/text.h"

namespace attend::inline v1 {

namespace {

using nlohmann::ordered_json;

constexpr const char* recording_page_function = "recording_page";

// By what their heads' rows spread over, in the mean: the broadest first. Those that keep no q and k are not there.
std::vector<std::int64_t> broadest_first(const Recording& recording) {
  std::vector<std::pair<double, std::int64_t>> layers;
  for (std::int64_t n = 0; n < std::ssize(recording.layers()); ++n) {
    if (!recording.at(n).has_qk) continue;
    const std::vector<HeadScores> scores = recording.scores(n);
    const double sum =
        std::accumulate(scores.begin(), scores.end(), 0.0, [](double s, const HeadScores& x) { return s + x.entropy; });
    layers.emplace_back(scores.empty() ? 0 : -sum / static_cast<double>(scores.size()), n);
  }
  std::ranges::sort(layers);
  std::vector<std::int64_t> order;
  order.reserve(layers.size());
  for (const auto& [breadth, layer] : layers) order.push_back(layer);
  return order;
}

std::int64_t qk_bytes(const RecordedLayer& x) {
  return x.batch * (std::ssize(x.heads) * x.queries + x.kv_heads * x.keys) * x.head_size * size_of(x.dtype);
}

// The recording's file, packed so that the page keeps to its budget.
struct Packed {
  std::string file;        // base64 of its .gz
  std::int64_t bytes = 0;  // of the file itself
  std::string left_out = {};
};

// What is left out, one step after the other. First of all maps of many blocks where q and k are kept, as any part of
// them is exact again; then q and k of layers, those with the broadest heads first; then maps of many blocks
// everywhere.
class Leaving {
 public:
  explicit Leaving(const Recording& recording) : recording_(recording), order_(broadest_first(recording)) {}

  const LeftOut& get() const { return out_; }
  // Whether the next step loses something.
  bool loses() const { return order_.empty() || !out_.maps.empty(); }
  // The next step, or as many further layers as have these bytes. False: there is nothing left.
  bool step(double bytes) {
    const std::size_t layers = recording_.layers().size();
    if (!loses()) {
      out_.maps = order_;
    } else if (out_.qk.size() < order_.size()) {
      do {
        out_.qk.push_back(order_[out_.qk.size()]);
        bytes -= static_cast<double>(qk_bytes(recording_.at(out_.qk.back())));
      } while (bytes > 0 && out_.qk.size() < order_.size());
    } else if (out_.maps.size() < layers) {
      out_.maps.resize(layers);
      std::iota(out_.maps.begin(), out_.maps.end(), 0);
    } else {
      return false;
    }
    return true;
  }

  std::string words() const {
    std::string text;
    if (!out_.qk.empty()) {
      constexpr std::size_t most = 8;
      std::vector<std::int64_t> layers = out_.qk;
      std::ranges::sort(layers);
      std::vector<std::string> names;
      for (std::size_t n = 0; n < std::min(most, layers.size()); ++n) names.push_back(recording_.at(layers[n]).name);
      text = fmt::format(
          "q and k of {} of {} layers, those of the broadest heads ({}{}), whose weights are shown in blocks and not "
          "exactly",
          layers.size(), order_.size(), fmt::join(names, ", "), layers.size() > most ? ", ..." : "");
    }
    if (const std::size_t maps = out_.maps.size() - std::min(out_.maps.size(), order_.size()); maps > 0)
      text += fmt::format("{}maps of more than {} x {} blocks of {} layers", text.empty() ? "" : "; ", out_.most.rows,
                          out_.most.columns, maps);
    return text;
  }

 private:
  const Recording& recording_;
  std::vector<std::int64_t> order_;
  LeftOut out_;
};

// beside: the page's bytes without the file's, of what is packed.
Packed pack(const Recording& recording, std::int64_t budget, bool strict,
            const std::function<std::int64_t(const Packed&)>& beside) {
  // Of a byte of the file in the page: never less, so that what is too large even then need not be tried; and of q and
  // k, which shrink little.
  constexpr double best = 0.3 * 4 / 3, of_qk = 0.92 * 4 / 3;
  Leaving leaving(recording);
  while (true) {
    const std::string file = recording.to_bytes(leaving.get());
    Packed packed{.file = {}, .bytes = std::ssize(file), .left_out = leaving.words()};
    const auto least = static_cast<std::int64_t>(best * static_cast<double>(file.size()));
    std::int64_t size = beside(packed) + least;
    if (size <= budget || (strict && leaving.loses())) {
      packed.file = base64(gzip(file));
      size += std::ssize(packed.file) - least;
      if (size <= budget) return packed;
    }
    if (strict && leaving.loses())
      fail(ErrorCode::bad_value, recording_page_function, "the page would take {}, and may take {}", megabytes(size),
           megabytes(budget));
    if (!leaving.step(static_cast<double>(size - budget) / of_qk))
      fail(ErrorCode::bad_value, recording_page_function,
           "the page would take {} or more with all left out that can be, and may take {}: record fewer layers, or "
           "fewer of their heads",
           megabytes(size), megabytes(budget));
  }
}

void check_head(const Recording& recording, const std::string& head) {
  if (head.empty()) return;
  for (const RecordedLayer& layer : recording.layers())
    for (const std::int64_t number : layer.heads)
      if (head_name(layer.name, number) == head) return;
  fail(ErrorCode::bad_value, recording_page_function, "the recording has no head '{}'", head);
}

// "“the cat sat”, 12 layers, 144 heads. ..."
std::string lead_of(const Recording& recording, std::int64_t item) {
  std::int64_t heads = 0;
  for (const RecordedLayer& layer : recording.layers()) heads += std::ssize(layer.heads);
  std::string text;
  for (const auto* tokens : {&recording.tokens, &recording.decoder_tokens}) {
    const std::vector<std::string> own = item_of(*tokens, item);
    if (!own.empty())
      text += fmt::format("{}“{}”, {} tokens; ", text.empty() ? "" : "to ", caption_text(own), own.size());
  }
  return fmt::format(
      "{}{} layers, {} heads. Each map has a row for each token, or block of tokens, that looks, and a column "
      "for each that is looked at; the darker, the more of the attention.",
      text, recording.layers().size(), heads);
}

}  // namespace

std::string megabytes(std::int64_t bytes) {
  return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
}

std::string pages_note(std::string_view explorer) {
  return explorer.empty() ? "attend was built without the page that computes, which `make page` makes" : "";
}

std::string pages_note() {
  return pages_note(built_explorer());
}

std::string explorer_page(std::string_view explorer, std::string_view model, const std::string& shown,
                          const ordered_json& request, std::string_view file) {
  std::map<std::string_view, std::string> texts{
      {"title", escape_markup(encode_utf8(one_line(model, {recording_page_function, "model"}))) +
                    (model.empty() ? "Attention, head by head" : " - attention, head by head")},
      {"static", shown}};
  if (explorer.empty()) {
    texts["style"] = static_style();
    return fill_page(static_page(), texts);
  }
  texts["request"] = script_json(request);
  texts["file"] = file;
  return fill_page(explorer, texts);
}

Page recording_page(const Recording& recording, const RecordingPageOptions& options, std::string_view explorer) {
  if (recording.layers().empty()) fail(ErrorCode::bad_value, recording_page_function, "the recording has no layers");
  for (std::int64_t n = 0; n < std::ssize(recording.layers()); ++n) check_item(recording, n, options.item);
  check_head(recording, options.head);
  Page page{.html = {}, .left_out = {}, .note = pages_note(explorer)};
  const std::string shown = static_part(recording, options.item, lead_of(recording, options.item), page.note);
  const auto or_null = [](const std::string& text) { return text.empty() ? ordered_json() : ordered_json(text); };
  const auto filled = [&](const Packed& packed) {
    const ordered_json file = {{"file", options.file}, {"bytes", packed.bytes}, {"left_out", or_null(packed.left_out)}};
    return explorer_page(explorer, recording.model, shown,
                         {{"recording", file}, {"item", options.item}, {"head", or_null(options.head)}}, packed.file);
  };
  Packed packed;
  if (page.note.empty())
    packed = pack(recording, options.budget, options.strict, [&](const Packed& x) { return std::ssize(filled(x)); });
  page.left_out = packed.left_out;
  page.html = filled(packed);
  return page;
}

Page recording_page(const Recording& recording, const RecordingPageOptions& options) {
  return recording_page(recording, options, built_explorer());
}

}  // namespace attend::inline v1
