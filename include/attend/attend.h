// Everything that this attend was built with.
#pragma once

#include "attend/attention.h"
#include "attend/dtype.h"
#include "attend/error.h"
#include "attend/io.h"
#include "attend/kv_cache.h"
#include "attend/layers.h"
#include "attend/quantized.h"
#include "attend/random.h"
#include "attend/recording.h"
#include "attend/ring.h"
#include "attend/summary.h"
#include "attend/tensor.h"
#include "attend/threads.h"
#include "attend/version.h"
#ifndef ATTEND_WITHOUT_MODELS
#include "attend/analysis.h"
#include "attend/answer_trace.h"
#include "attend/chat.h"
#include "attend/circuits.h"
#include "attend/composition.h"
#include "attend/features.h"
#include "attend/gradient.h"
#include "attend/jacobian_lens.h"
#include "attend/late_interaction.h"
#include "attend/models.h"
#include "attend/passages.h"
#include "attend/saliency.h"
#include "attend/score_split.h"
#include "attend/session.h"
#include "attend/sparse_vectors.h"
#include "attend/steering.h"
#include "attend/tasks.h"
#include "attend/tokenizer.h"
#include "attend/variants.h"
#include "attend/vectors.h"
#endif
#ifndef ATTEND_WITHOUT_PICTURES
#include "attend/explain.h"
#include "attend/look.h"
#include "attend/pages.h"
#include "attend/picture.h"
#endif
#if !defined(ATTEND_WITHOUT_MODELS) && !defined(ATTEND_WITHOUT_PICTURES)
#include "attend/analysis_look.h"
#include "attend/class_pages.h"
#endif
