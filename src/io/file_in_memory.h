// Files in memory, for a page in a browser: what InputFile opens there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace attend::inline v1 {

// Room for the bytes of a file of that name, "/folder/file", in place of one that has the name; null where memory has
// not so much. The bytes are the caller's to write before the file is opened, and are used where they lie.
std::byte* make_file_in_memory(const std::string& name, std::uint64_t size);
// One of them, or all.
void drop_file_in_memory(const std::string& name);
// None may be mapped, or be opened.
void drop_files_in_memory();

}  // namespace attend::inline v1
