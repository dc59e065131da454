#include "models/weights.h"

#include <nlohmann/json.hpp>
#include <set>

#include "io/json_file.h"
#include "io/mapped_file.h"
#include "io/safetensors.h"

namespace attend::inline v1::models {

namespace {

namespace fs = std::filesystem;

constexpr const char* single_name = "model.safetensors";
constexpr const char* index_name = "model.safetensors.index.json";

using Names = std::set<std::string, std::less<>>;

// What a message shows of many.
std::string list(const Names& names) {
  int left = 5;
  std::string out;
  for (const std::string& name : names) {
    if (left-- == 0) return out + ", ...";
    out += (out.empty() ? "" : ", ") + quote(name);
  }
  return out;
}

// A header's length is free, and so is where the data begins. A bool's bytes are looked at, once.
bool can_stay(const SafetensorsFile::Entry& entry, const std::byte* data) {
  return !entry.narrow && entry.dtype != DType::boolean && is_aligned(data, entry.dtype);
}

void add_all(const InputFile& file, const SafetensorsFile& tensors, Weights& to) {
  const auto map = std::make_shared<const MappedFile>(file);
  for (const auto& entry : tensors.entries()) {
    const std::byte* data = map->data() + tensors.begin(entry);
    if (can_stay(entry, data)) {
      to.add(entry.name, View(data, entry.dtype, entry.shape), map);
    } else {
      to.add(entry.name, tensors.read(entry));
    }
  }
}

// The tensors of each shard, as the index has them.
std::map<std::string, Names> read_index(std::string_view function, const fs::path& path) {
  const JsonFile file = read_json(function, path);
  const Member root = file.root();
  root.only({"metadata", "weight_map"});
  const Member map = root["weight_map"];
  if (!map.value().is_object() || map.value().empty()) map.refuse("an object with the file of each tensor");
  std::map<std::string, Names> shards;
  for (const auto& [tensor, name] : map.value().items()) {
    const Member member(map.place().in(quote(tensor)), name);
    const std::string shard = member.text();
    // What is opened lies in the folder: whoever wrote the index does not choose among this machine's files.
    if (shard.empty() || shard == "." || shard == ".." || shard.find('/') != std::string::npos) {
      member.refuse(fmt::format("the name of a file in the same folder, not {}", quote(shard)));
    }
    shards[shard].insert(tensor);
  }
  return shards;
}

void check_complete(const Place& folder, const fs::path& path, const std::map<std::string, Names>& shards) {
  Names missing;
  for (const auto& [shard, tensors] : shards) {
    if (!is_there(path / shard)) missing.insert(shard);
  }
  if (missing.empty()) return;
  fail_at(folder, "{} of the {} files that {} names are missing, as if a download had stopped halfway: {}",
          missing.size(), shards.size(), index_name, list(missing));
}

void check_shard(const InputFile& file, const SafetensorsFile& tensors, const Names& expected) {
  Names missing, more;
  for (const std::string& name : expected) {
    if (tensors.find(name) == nullptr) missing.insert(name);
  }
  for (const auto& entry : tensors.entries()) {
    if (!expected.contains(entry.name)) more.insert(entry.name);
  }
  if (!missing.empty()) {
    fail_at(file.place(), "{} tensors are missing, which {} says are in this file: {}", missing.size(), index_name,
            list(missing));
  }
  if (!more.empty()) {
    fail_at(file.place(), "{} tensors are here, which {} does not list for this file: {}", more.size(), index_name,
            list(more));
  }
}

}  // namespace

Weights Weights::open(std::string_view function, const fs::path& folder) {
  Weights weights(Place{std::string(function), quote(folder.native())});
  if (!is_folder(folder)) fail_at(weights.place(), "is not a folder");
  if (is_there(folder / single_name)) {
    const InputFile file(function, folder / single_name);
    add_all(file, SafetensorsFile(file), weights);
    return weights;
  }
  if (!is_there(folder / index_name)) {
    fail_at(weights.place(), "holds neither {} nor {}; weights of other forms are not read", single_name, index_name);
  }
  const auto shards = read_index(function, folder / index_name);
  check_complete(weights.place(), folder, shards);
  for (const auto& [shard, names] : shards) {
    const InputFile file(function, folder / shard);
    const SafetensorsFile tensors(file);
    check_shard(file, tensors, names);
    add_all(file, tensors, weights);
  }
  return weights;
}

void Weights::add(std::string name, Tensor tensor) {
  const auto owned = std::make_shared<const Tensor>(std::move(tensor));
  add(std::move(name), *owned, owned);
}

void Weights::add(std::string name, const View& view, std::shared_ptr<const void> owner) {
  tensors_.insert_or_assign(std::move(name), Matrix{view});
  own(std::move(owner));
}

void Weights::add(std::string name, const QuantizedView& blocks, std::shared_ptr<const void> owner) {
  tensors_.insert_or_assign(std::move(name), Matrix{View(nullptr, DType::f32, {blocks.rows, blocks.columns}), blocks});
  own(std::move(owner));
}

// Of a file's tensors, which come one after another, one share is enough.
void Weights::own(std::shared_ptr<const void> owner) {
  if (owners_.empty() || owners_.back() != owner) owners_.push_back(std::move(owner));
}

void Weights::transpose(std::string_view name) {
  View& view = tensors_.find(name)->second.view;
  view = view.transpose(0, 1);
}

const Matrix* Weights::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

}  // namespace attend::inline v1::models
