#include <nlohmann/json.hpp>

#include "io/json_member.h"
#include "tests/fuzz/mutators/mutate.h"

namespace attend::fuzz {

namespace {

using nlohmann::json;

constexpr std::size_t longest_text = 64;
// Of an array that is made longer; a configuration's lists have an element a layer.
constexpr std::size_t longest_array = 4096;

// Every value in it, itself first.
void collect(json& value, std::vector<json*>& all) {
  all.push_back(&value);
  if (!value.is_structured()) return;
  for (json& each : value) collect(each, all);
}

// The dump throws where a text is not UTF-8.
std::string mutate_text(std::string text, const MutateBytes& mutate_bytes) {
  text = mutate_bytes(std::move(text), longest_text);
  for (char& each : text)
    if (static_cast<unsigned char>(each) >= 0x80) each = '?';
  return text;
}

class Mutation {
 public:
  Mutation(json& whole, std::span<const std::string_view> names, Random& random, const MutateBytes& mutate_bytes)
      : names_(names), random_(random), mutate_bytes_(mutate_bytes) {
    collect(whole, all_);
  }

  void run() {
    json& value = *all_[below(all_.size(), random_)];
    if (value.is_object()) return change_members(value);
    if (value.is_array() && !value.empty()) return change_elements(value);
    change_scalar(value);
  }

 private:
  json scalar() {
    switch (below(6, random_)) {
      case 0:
        return nullptr;
      case 1:
        return one_in(2, random_);
      case 2:
        return 0.5;
      case 3:
        return std::string(names_.empty() ? std::string_view("a") : names_[below(names_.size(), random_)]);
      case 4:
        return json::array();
      default:
        return telling_number(1, random_);
    }
  }

  void change_scalar(json& value) {
    const std::size_t kind = below(8, random_);
    if (kind == 0) {
      value = scalar();
    } else if (kind == 1) {
      const json other = *all_[below(all_.size(), random_)];  // a copy: it may hold the value
      if (other.size() < longest_array) value = other;
    } else if (value.is_boolean()) {
      value = !value.get<bool>();
    } else if (value.is_number_integer()) {
      value = telling_number(value.get<std::int64_t>(), random_);
    } else if (value.is_number()) {
      constexpr double factors[] = {0, -1, 2, 0.5, 1e30, 1e-30, 1e300};
      value = value.get<double>() * factors[below(std::size(factors), random_)];
    } else if (value.is_string() && (names_.empty() || one_in(2, random_))) {
      value = mutate_text(value.get<std::string>(), mutate_bytes_);
    } else {
      value = scalar();
    }
  }

  void change_members(json& object) {
    const std::size_t kind = below(4, random_);
    if (object.empty() || kind == 0) {
      const std::string name(names_.empty() ? std::string_view("a") : names_[below(names_.size(), random_)]);
      object[name] = scalar();
      return;
    }
    auto member = object.begin();
    std::advance(member, static_cast<std::ptrdiff_t>(below(object.size(), random_)));
    if (kind == 1) {
      object.erase(member);
    } else if (kind == 2) {
      const json value = member.value();
      const std::string name = mutate_text(member.key(), mutate_bytes_);
      object[name] = value;
    } else {
      change_scalar(member.value());
    }
  }

  void change_elements(json& array) {
    const auto at = array.begin() + static_cast<std::ptrdiff_t>(below(array.size(), random_));
    const std::size_t kind = below(4, random_);
    if (kind == 0) {
      array.erase(at);
    } else if (kind == 1) {
      const json element = *at;
      const std::size_t times = one_in(8, random_) ? below(longest_array, random_) : 1;
      for (std::size_t n = 0; n < times && array.size() < longest_array; ++n) array.push_back(element);
    } else if (kind == 2) {
      std::swap(*at, array.front());
    } else {
      change_scalar(*at);
    }
  }

  std::span<const std::string_view> names_;
  Random& random_;
  const MutateBytes& mutate_bytes_;
  std::vector<json*> all_;
};

}  // namespace

std::int64_t telling_number(std::int64_t now, Random& random) {
  constexpr std::int64_t telling[] = {0,
                                      -1,
                                      1,
                                      2,
                                      3,
                                      7,
                                      8,
                                      16,
                                      255,
                                      256,
                                      4096,
                                      65'536,
                                      1 << 20,
                                      INT32_MAX,
                                      1LL << 31,
                                      1LL << 32,
                                      1LL << 53,
                                      1LL << 62,
                                      INT64_MIN,
                                      INT64_MAX,
                                      -(1LL << 31),
                                      1'000'000'000};
  switch (below(4, random)) {
    case 0:
      return static_cast<std::int64_t>(static_cast<std::uint64_t>(now) + 1);
    case 1:
      return static_cast<std::int64_t>(static_cast<std::uint64_t>(now) - 1);
    case 2:
      return static_cast<std::int64_t>(static_cast<std::uint64_t>(now) * 2);
    default:
      return telling[below(std::size(telling), random)];
  }
}

std::string mutate_json(std::string_view text, std::span<const std::string_view> names, Random& random,
                        const MutateBytes& mutate_bytes) {
  json whole = is_nested_deeper(text, 100) ? json() : json::parse(text, nullptr, false);
  if (whole.is_discarded() || !whole.is_structured()) whole = json::object();
  for (std::size_t n = 1 + below(3, random); n > 0; --n) Mutation(whole, names, random, mutate_bytes).run();
  return whole.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace attend::fuzz
