// All headers for pretrained models: model_info.h, model_call.h, generation.h, model.h and model_files.h.
#pragma once

#ifdef ATTEND_WITHOUT_MODELS
#error "attend was built with ATTEND_MODELS=OFF: it has no models.h"
#endif

#include "attend/model.h"
#include "attend/model_call.h"
#include "attend/model_files.h"
#include "attend/model_info.h"
