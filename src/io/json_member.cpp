#include "io/json_member.h"

#include <algorithm>

#include "io/json_file.h"

namespace attend::inline v1 {

bool is_nested_deeper(std::string_view json, int most) {
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

nlohmann::json parse_json(const Place& place, std::string_view text) {
  // nlohmann-json compares and prints a value by calling itself for what is inside: a megabyte of [ ends the stack.
  constexpr int most = 100;
  if (is_nested_deeper(text, most)) fail_at(place, "has more than {} lists and objects in each other", most);
  nlohmann::json root = nlohmann::json::parse(text, nullptr, false);
  if (root.is_discarded()) fail_at(place, "is not JSON");
  return root;
}

JsonFile read_json(std::string_view function, const std::filesystem::path& path) {
  const InputFile file(function, path);
  return {file.place(), parse_json(file.place(), file.read(0, file.size()))};
}

bool Member::has(const char* name) const {
  return value_.is_object() && value_.contains(name);
}

Member Member::operator[](const char* name) const {
  if (!value_.is_object()) refuse("an object");
  if (!value_.contains(name)) fail_at(place_, "{} is missing", name);
  return {place_.in(name), value_[name]};
}

bool Member::given(const char* name) const {
  return has(name) && !value_[name].is_null();
}

void Member::only(std::initializer_list<std::string_view> names) const {
  if (!value_.is_object()) refuse("an object");
  for (const auto& [name, of] : value_.items()) {
    if (std::ranges::find(names, name) == names.end()) fail_at(place_, "{} is not known", quote(name));
  }
}

std::vector<Member> Member::list() const {
  if (!value_.is_array()) refuse("a list");
  std::vector<Member> members;
  members.reserve(value_.size());
  for (std::size_t n = 0; n < value_.size(); ++n) members.emplace_back(place_.in(fmt::format("{}", n)), value_[n]);
  return members;
}

std::string Member::text() const {
  if (!value_.is_string()) refuse("text");
  return value_.get<std::string>();
}

bool Member::truth() const {
  if (!value_.is_boolean()) refuse("true or false");
  return value_.get<bool>();
}

double Member::number() const {
  if (!value_.is_number()) refuse("a number");
  return value_.get<double>();
}

std::int64_t Member::whole(std::int64_t low, std::int64_t high) const {
  const bool fits =
      value_.is_number_integer() && !(value_.is_number_unsigned() && value_.get<std::uint64_t>() > INT64_MAX);
  if (!fits || value_.get<std::int64_t>() < low || value_.get<std::int64_t>() > high) {
    refuse(fmt::format("a whole number from {} to {}", low, high));
  }
  return value_.get<std::int64_t>();
}

std::pair<std::int64_t, std::int64_t> Member::two(std::int64_t low, std::int64_t high) const {
  const std::vector<Member> both = list();
  if (both.size() != 2) refuse("two whole numbers");
  return {both[0].whole(low, high), both[1].whole(low, high)};
}

std::vector<std::string> Member::texts() const {
  const std::vector<Member> members = list();
  std::vector<std::string> all;
  all.reserve(members.size());
  for (const Member& each : members) all.push_back(each.text());
  return all;
}

void Member::refuse(std::string_view expected) const {
  fail_at(place_, "expected {}", expected);
}

}  // namespace attend::inline v1
