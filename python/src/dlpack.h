// DLPack's C exchange API (github.com/dmlc/dlpack, dlpack.h 1.3): the functions behind a type's
// __dlpack_c_exchange_api__, which cost a tenth of a call of __dlpack__.
#pragma once

#include <nanobind/ndarray.h>

#include <cstdint>

namespace attend::python {

struct DLPackVersion {
  std::uint32_t major;
  std::uint32_t minor;
};

struct ManagedTensor {
  DLPackVersion version;
  void* manager_context;
  void (*deleter)(ManagedTensor* self);
  std::uint64_t flags;
  nanobind::dlpack::dltensor tensor;
};

constexpr std::uint32_t exchange_api_major = 1;

// The layout is DLPack's; the member names are ours.
struct ExchangeApi {
  DLPackVersion version;
  ExchangeApi* previous;
  int (*allocate)(nanobind::dlpack::dltensor* like, ManagedTensor** out, void* error_context,
                  void (*set_error)(void* error_context, const char* kind, const char* message));
  int (*managed_from_object)(void* object, ManagedTensor** out);
  int (*object_from_managed)(ManagedTensor* tensor, void** out);
  int (*borrow_from_object)(void* object, nanobind::dlpack::dltensor* out);
  int (*current_work_stream)(std::int32_t device_type, std::int32_t device, void** out);
};

}  // namespace attend::python
