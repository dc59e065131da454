// The decode path's part of a schedule: a range of the keys of a key head is an item of work.
#pragma once

#include <cstdint>

#include "attention/problem.h"
#include "attention/schedule.h"

namespace attend::inline v1 {

// Fills in all that follows from the schedule's path, target, members and workers.
void cut_decode(const Problem& problem, Schedule& schedule);

void run_decode(const Problem& problem, const Schedule& schedule, const ResultViews& to, char* scratch);

}  // namespace attend::inline v1
