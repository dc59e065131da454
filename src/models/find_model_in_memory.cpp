// models/find_model.h where there is no file system, and so no cache of models: a name is a path.
#include "io/file.h"
#include "models/find_model.h"

namespace attend::inline v1 {

std::filesystem::path models::find(std::string_view function, const std::filesystem::path& path) {
  if (is_there(path)) return path;
  fail(ErrorCode::bad_file, function, "{} is not among the files that were given", quote(path.string()));
}

}  // namespace attend::inline v1
