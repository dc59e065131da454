// JSON that is read strictly: what is not as it should be is a bad_file that names the place.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/file.h"

namespace attend::inline v1 {

// Whether lists and objects stand in each other more than `most` deep.
bool is_nested_deeper(std::string_view json, int most);

// The whole of it. Throws bad_file.
nlohmann::json parse_json(const Place& place, std::string_view text);

// A value, and where it stands in the file.
class Member {
 public:
  static constexpr std::int64_t most = std::int64_t{1}
                                       << 40;  // of a size: products stay within 63 bits where shapes do

  Member(const Place& place, const nlohmann::json& value) : place_(place), value_(value) {}

  const nlohmann::json& value() const { return value_; }
  const Place& place() const { return place_; }
  bool has(const char* name) const;
  Member operator[](const char* name) const;
  // Whether it is there, and not null.
  bool given(const char* name) const;
  // An object with no other names than these.
  void only(std::initializer_list<std::string_view> names) const;
  std::vector<Member> list() const;
  std::string text() const;
  bool truth() const;
  double number() const;
  std::int64_t whole(std::int64_t low, std::int64_t high = most) const;
  std::pair<std::int64_t, std::int64_t> two(std::int64_t low, std::int64_t high = most) const;
  std::vector<std::string> texts() const;
  [[noreturn]] void refuse(std::string_view expected) const;

 private:
  Place place_;
  const nlohmann::json& value_;
};

}  // namespace attend::inline v1
