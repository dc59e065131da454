// The files of a sentence-transformers folder: modules.json, and those of each module that it lists.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "io/json_member.h"
#include "models/sentences/modules.h"

namespace attend::inline v1::models {

struct ModuleEntry {
  Member said;

  // Its class: "Transformer", "Dense", ... Throws bad_file for one of another package.
  std::string name() const;
  // The name of its folder in this one, or "". Throws bad_file for a path that leads elsewhere.
  std::string path() const;
  // What is known comes last in the message.
  [[noreturn]] void refuse(std::string_view known) const;
};
// In their order; of two modules of one name the later one counts, in the place of the first.
std::vector<ModuleEntry> module_entries(const Member& list);
// The same of a list that is followed: not of more modules than anyone has, each of which may copy tensors.
std::vector<ModuleEntry> followed_entries(const Member& list);

// The rows that a module reads and writes, as its configuration has their names.
inline constexpr const char* of_sentences = "sentence_embedding";
inline constexpr const char* of_tokens = "token_embeddings";
// rows: which they have to be. otherwise: where the file does not say.
void check_rows(const Member& config, const char* rows, const char* otherwise);

// Of the module's folder. size: of the vectors that come, and then of those that it gives. Throws bad_file.
DenseModule read_dense(const std::filesystem::path& folder, const char* rows, std::int64_t& size);
// linear.weight among the tensors of the folder's model: ColBERT's.
DenseModule read_projection(const std::filesystem::path& folder, std::int64_t& size);
LayerNorm read_layer_norm(const std::filesystem::path& folder, std::int64_t size);

}  // namespace attend::inline v1::models
