#include "io/format.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "attend/io.h"
#include "core/element.h"
#include "core/message.h"

namespace attend::inline v1 {

namespace {

// PyTorch's default print options.
constexpr std::int64_t edge_items = 3;  // shown at either end of a summarised axis
constexpr int line_width = 80;

// The places of an axis that are shown, and whether "..." stands between its two ends.
struct Shown {
  std::vector<std::int64_t> places;
  bool gap = false;
};

Shown shown_places(std::int64_t size, bool summarise) {
  Shown shown;
  shown.gap = summarise && size > 2 * edge_items;
  for (std::int64_t i = 0; i < size; ++i) {
    if (!shown.gap || i < edge_items || i >= size - edge_items) shown.places.push_back(i);
    if (shown.gap && i == edge_items) i = size - edge_items - 1;
  }
  return shown;
}

void for_each_shown(const View& values, bool summarise, const std::function<void(const View&)>& body) {
  if (values.rank() == 0) return body(values);
  for (const std::int64_t i : shown_places(values.size(0), summarise).places)
    for_each_shown(values.select(0, i), summarise, body);
}

// One notation for all the numbers that are shown, chosen from the finite ones that are not zero.
class Notation {
 public:
  Notation(const View& values, bool summarise, SciMode sci_mode) : floating_(is_floating(values.dtype())) {
    if (floating_) choose(values, summarise);
    if (sci_mode == SciMode::off) scientific_ = false;
    for_each_shown(values, summarise, [&](const View& one) {
      const double value = load_element(one.dtype(), one.raw());
      // Zeros, infinities and NaNs do not count here, so they may stick out, as they do in PyTorch.
      if (!floating_ || (std::isfinite(value) && value != 0)) width_ = std::max(width_, text(one).size());
    });
  }

  std::size_t width() const { return width_; }
  std::string aligned(const View& one) const { return fmt::format("{:>{}}", text(one), width_); }

 private:
  void choose(const View& values, bool summarise) {
    double smallest = std::numeric_limits<double>::infinity();
    double largest = 0;
    for_each_shown(values, summarise, [&](const View& one) {
      const double value = load_element(one.dtype(), one.raw());
      if (!std::isfinite(value) || value == 0) return;
      smallest = std::min(smallest, std::abs(value));
      largest = std::max(largest, std::abs(value));
      whole_ = whole_ && value == std::ceil(value);
    });
    scientific_ = largest > 0 && (largest / smallest > 1000 || largest > 1e8 || smallest < 1e-4);
  }

  std::string text(const View& one) const {
    if (one.dtype() == DType::boolean) return load_element(one.dtype(), one.raw()) != 0 ? "True" : "False";
    if (one.dtype() == DType::i64) return fmt::format("{}", load<std::int64_t>(one.raw()));
    const double value = load_element(one.dtype(), one.raw());
    if (!floating_) return fmt::format("{:.0f}", value);
    if (std::isnan(value)) return "nan";
    if (scientific_) return fmt::format("{:.4e}", value);
    if (!whole_) return fmt::format("{:.4f}", value);
    return fmt::format("{:.0f}{}", value, std::isfinite(value) ? "." : "");
  }

  bool floating_;
  bool whole_ = true;
  bool scientific_ = false;
  std::size_t width_ = 1;
};

std::string broken_line(int newlines, int indent) {
  std::string out = ",";
  out.append(static_cast<std::size_t>(newlines), '\n');
  return out.append(static_cast<std::size_t>(indent), ' ');
}

std::string format_row(const View& row, int indent, int width, bool summarise, const Notation& notation) {
  const Shown shown = shown_places(row.size(0), summarise);
  std::vector<std::string> items;
  items.reserve(shown.places.size() + 1);
  for (const std::int64_t i : shown.places) items.push_back(notation.aligned(row.select(0, i)));
  if (shown.gap) items.insert(items.begin() + edge_items, " ...");

  const int item_width = static_cast<int>(notation.width()) + 2;  // with comma and space
  const auto per_line = static_cast<std::size_t>(std::max(1, (width - indent) / item_width));
  const std::string line_break = broken_line(1, indent + 1);
  std::string out = "[";
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += i % per_line == 0 ? line_break : ", ";
    out += items[i];
  }
  return out + "]";
}

std::string format_nested(const View& values, int indent, int width, bool summarise, const Notation& notation) {
  if (values.rank() == 0) return notation.aligned(values);
  if (values.rank() == 1) return format_row(values, indent, width, summarise, notation);
  const Shown shown = shown_places(values.size(0), summarise);
  std::vector<std::string> slices;
  slices.reserve(shown.places.size() + 1);
  for (const std::int64_t i : shown.places)
    slices.push_back(format_nested(values.select(0, i), indent + 1, width, summarise, notation));
  if (shown.gap) slices.insert(slices.begin() + edge_items, "...");

  // Matrices are a line apart, higher axes one line more each.
  const std::string separator = broken_line(values.rank() - 1, indent + 1);
  return fmt::format("[{}]", fmt::join(slices, separator));
}

const char* torch_name(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "torch.float32";
    case DType::f64:
      return "torch.float64";
    case DType::bf16:
      return "torch.bfloat16";
    case DType::f16:
      return "torch.float16";
    case DType::i64:
      return "torch.int64";
    case DType::i8:
      return "torch.int8";
    case DType::u8:
      return "torch.uint8";
    case DType::boolean:
      return "torch.bool";
  }
  return "";
}

// What the numbers alone do not say.
std::vector<std::string> suffixes_of(const View& tensor) {
  std::vector<std::string> suffixes;
  const bool empty = tensor.count() == 0;
  if (empty && tensor.rank() != 1) suffixes.push_back(fmt::format("size=({})", fmt::join(tensor.shape(), ", ")));
  const bool plain =
      tensor.dtype() == DType::f32 || (!empty && (tensor.dtype() == DType::i64 || tensor.dtype() == DType::boolean));
  if (!plain) suffixes.push_back(fmt::format("dtype={}", torch_name(tensor.dtype())));
  return suffixes;
}

}  // namespace

std::string format_values(const View& values, int indent, int width, SciMode sci_mode, std::int64_t most) {
  const std::int64_t count = values.count();
  if (count == 0) return "[]";
  const bool summarise = count > most;
  return format_nested(values, indent, width, summarise, Notation(values, summarise, sci_mode));
}

std::string format_tensor(const View& tensor) {
  constexpr std::string_view prefix = "tensor(";
  constexpr int indent = prefix.size();
  std::string out = std::string(prefix) + format_values(tensor, indent, line_width);
  const std::size_t newline = out.rfind('\n');
  const std::size_t line_start = newline == std::string::npos ? 0 : newline + 1;
  std::size_t last_line = out.size() - line_start + 2;  // PyTorch counts two columns too many
  for (const std::string& suffix : suffixes_of(tensor)) {
    const bool fits = last_line + suffix.size() + 2 <= line_width;
    out += fits ? ", " : broken_line(1, indent);
    out += suffix;
    last_line = fits ? last_line + suffix.size() + 2 : indent + suffix.size();
  }
  return out + ")";
}

}  // namespace attend::inline v1
