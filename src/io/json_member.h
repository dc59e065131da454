// JSON that is read strictly: what is not as it should be is a bad_file that names the place.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/file.h"

namespace attend {

// Whether lists and objects stand in each other more than `most` deep.
inline bool is_nested_deeper(std::string_view json, int most) {
  int depth = 0;
  bool in_text = false;
  for (std::size_t at = 0; at < json.size(); ++at) {
    const char next = json[at];
    if (next == '"') in_text = !in_text;
    if (in_text && next == '\\') ++at;
    if (in_text) continue;
    if (next == '[' || next == '{') ++depth;
    if (next == ']' || next == '}') --depth;
    if (depth > most) return true;
  }
  return false;
}

// The whole of it. Throws bad_file.
inline nlohmann::json parse_json(const Place& place, std::string_view text) {
  // nlohmann-json compares and prints a value by calling itself for what is inside: a megabyte of [ ends the stack.
  constexpr int most = 100;
  if (is_nested_deeper(text, most)) fail_at(place, "has more than {} lists and objects in each other", most);
  nlohmann::json root = nlohmann::json::parse(text, nullptr, false);
  if (root.is_discarded()) fail_at(place, "is not JSON");
  return root;
}

// A value, and where it stands in the file.
class Member {
 public:
  static constexpr std::int64_t most = std::int64_t{1}
                                       << 40;  // of a size: products stay within 63 bits where shapes do

  Member(const Place& place, const nlohmann::json& value) : place_(place), value_(value) {}

  const nlohmann::json& value() const { return value_; }
  const Place& place() const { return place_; }
  bool has(const char* name) const { return value_.is_object() && value_.contains(name); }
  Member operator[](const char* name) const {
    if (!value_.is_object()) refuse("an object");
    if (!value_.contains(name)) fail_at(place_, "{} is missing", name);
    return {place_.in(name), value_[name]};
  }
  // Whether it is there, and not null.
  bool given(const char* name) const { return has(name) && !value_[name].is_null(); }
  // An object with no other names than these.
  void only(std::initializer_list<std::string_view> names) const {
    if (!value_.is_object()) refuse("an object");
    for (const auto& [name, of] : value_.items()) {
      if (std::ranges::find(names, name) == names.end()) fail_at(place_, "{} is not known", quote(name));
    }
  }
  std::vector<Member> list() const {
    if (!value_.is_array()) refuse("a list");
    std::vector<Member> members;
    for (std::size_t n = 0; n < value_.size(); ++n) members.emplace_back(place_.in(fmt::format("{}", n)), value_[n]);
    return members;
  }
  std::string text() const {
    if (!value_.is_string()) refuse("text");
    return value_.get<std::string>();
  }
  bool truth() const {
    if (!value_.is_boolean()) refuse("true or false");
    return value_.get<bool>();
  }
  double number() const {
    if (!value_.is_number()) refuse("a number");
    return value_.get<double>();
  }
  std::int64_t whole(std::int64_t low, std::int64_t high = most) const {
    const bool fits =
        value_.is_number_integer() && !(value_.is_number_unsigned() && value_.get<std::uint64_t>() > INT64_MAX);
    if (!fits || value_.get<std::int64_t>() < low || value_.get<std::int64_t>() > high) {
      refuse(fmt::format("a whole number from {} to {}", low, high));
    }
    return value_.get<std::int64_t>();
  }
  std::pair<std::int64_t, std::int64_t> two(std::int64_t low, std::int64_t high = most) const {
    const std::vector<Member> both = list();
    if (both.size() != 2) refuse("two whole numbers");
    return {both[0].whole(low, high), both[1].whole(low, high)};
  }
  std::vector<std::string> texts() const {
    std::vector<std::string> all;
    for (const Member& each : list()) all.push_back(each.text());
    return all;
  }
  [[noreturn]] void refuse(std::string_view expected) const { fail_at(place_, "expected {}", expected); }

 private:
  Place place_;
  const nlohmann::json& value_;
};

}  // namespace attend
