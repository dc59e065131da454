#include "class/measures.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "attend/session.h"

namespace attend::inline v1 {

double to_digits(double value) {
  return std::stod(fmt::format("{:.6g}", value));
}

nlohmann::ordered_json rounded(const View& row) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  const Tensor values = row.to(DType::f32);
  for (std::int64_t n = 0; n < values.count(); ++n) list.push_back(to_digits(values.data<float>()[n]));
  return list;
}

nlohmann::ordered_json rows_of(const View& rows) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (std::int64_t n = 0; n < rows.size(0); ++n) list.push_back(rounded(rows.select(0, n)));
  return list;
}

double length_of(std::span<const float> row) {
  return std::sqrt(std::accumulate(row.begin(), row.end(), 0.0, [](double sum, double x) { return sum + x * x; }));
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double deviation(std::span<const float> values) {
  const auto count = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  return std::sqrt(std::accumulate(values.begin(), values.end(), 0.0,
                                   [&](double sum, double x) { return sum + (x - mean) * (x - mean); }) /
                   count);
}

std::string head_text(const Head& head) {
  return head_name(fmt::format("{}.self", head.first), head.second);
}

Recording recorded(const Model& model, std::string_view text) {
  Recorder recorder({.keep_qk = true, .key_sizes = true});
  return std::move(*run(model, {.ids = encode(model, text).ids}, {.recorder = &recorder}).recording);
}

std::string place_of(std::initializer_list<std::pair<std::string_view, std::string>> fields) {
  std::string place;
  for (const auto& [name, value] : fields) {
    place += fmt::format("{}{}=", place.empty() ? '#' : '&', name);
    for (const char c : value) {
      const auto byte = static_cast<unsigned char>(c);
      const bool plain = (byte >= '0' && byte <= '9') || ((byte | 0x20) >= 'a' && (byte | 0x20) <= 'z') || byte == '.';
      place += plain ? std::string(1, c) : fmt::format("%{:02X}", byte);
    }
  }
  return place;
}

}  // namespace attend::inline v1
