// What goes in and out of the page's modules: requests and answers as JSON.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attend/tensor.h"
#include "core/message.h"

namespace attend::page {

using Json = nlohmann::ordered_json;

// Of an object, each value is taken out by its name, and what is left at last has a name that nobody knows.
class Request {
 public:
  // function: that messages begin with.
  Request(const char* function, Json json) : function_(function), json_(std::move(json)) {
    if (!json_.is_object()) fail(ErrorCode::bad_value, function_, "the request is no JSON object");
  }

  bool has(const char* name) const { return json_.contains(name); }

  // Whether it was there.
  template <class T>
  bool take(const char* name, T& option) {
    const auto at = json_.find(name);
    if (at == json_.end()) return false;
    get(name, *at, option);
    json_.erase(at);
    return true;
  }
  template <class T>
  T need(const char* name) {
    T value{};
    if (!take(name, value)) fail(ErrorCode::bad_value, function_, "{} is missing", name);
    return value;
  }
  void end() const {
    if (!json_.empty()) fail(ErrorCode::bad_value, function_, "there is no option '{}'", json_.begin().key());
  }
  [[noreturn]] void refuse(const std::string& name, std::string_view expected, const Json& value) const {
    fail(ErrorCode::bad_value, function_, "{} is {}, expected {}", name,
         value.dump(-1, ' ', false, Json::error_handler_t::replace), expected);
  }

 private:
  // Nothing is taken for what it is not: 16.5 is no size, and 1 no bool.
  void get(const std::string& name, const Json& value, bool& to) const {
    if (!value.is_boolean()) refuse(name, "true or false", value);
    to = value.get<bool>();
  }
  void get(const std::string& name, const Json& value, std::string& to) const {
    if (!value.is_string()) refuse(name, "a text", value);
    to = value.get<std::string>();
  }
  void get(const std::string& name, const Json& value, double& to) const {
    if (!value.is_number()) refuse(name, "a number", value);
    to = value.get<double>();
  }
  void get(const std::string& name, const Json& value, std::uint64_t& to) const {
    if (!value.is_number_unsigned()) refuse(name, "a whole number from 0 to 2^64 - 1", value);
    to = value.get<std::uint64_t>();
  }
  void get(const std::string& name, const Json& value, std::int64_t& to) const {
    const bool too_large = value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX;
    if (!value.is_number_integer() || too_large) refuse(name, "a whole number", value);
    to = value.get<std::int64_t>();
  }
  void get(const std::string&, Json& value, Json& to) const { to = std::move(value); }
  template <class T>
  void get(const std::string& name, Json& value, std::vector<T>& to) const {
    if (!value.is_array()) refuse(name, "a list", value);
    to.clear();
    for (Json& each : value) get(name, each, to.emplace_back());
  }
  template <class A, class B>
  void get(const std::string& name, Json& value, std::pair<A, B>& to) const {
    if (!value.is_array() || value.size() != 2) refuse(name, "pairs", value);
    get(name, value[0], to.first), get(name, value[1], to.second);
  }
  // null: as if it were not there.
  template <class T>
  void get(const std::string& name, Json& value, std::optional<T>& to) const {
    if (value.is_null()) return;
    T read{};
    get(name, value, read);
    to = std::move(read);
  }

  const char* function_;
  Json json_;
};

// Where a tensor's numbers lie in the module's memory.
inline Json tensor_json(const View& tensor) {
  Json json = {{"shape", std::vector<std::int64_t>(tensor.shape().begin(), tensor.shape().end())},
               {"at", reinterpret_cast<std::uintptr_t>(tensor.raw())}};
  if (tensor.dtype() != DType::f32) json["dtype"] = name_of(tensor.dtype());
  return json;
}

inline std::string json_text(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

inline std::string error_json(std::string_view code, std::string_view message) {
  return json_text({{"error", {{"code", code}, {"message", message}}}});
}
inline std::string error_json(const Error& error) {
  return error_json(name_of(error.code()), error.what());
}

}  // namespace attend::page
