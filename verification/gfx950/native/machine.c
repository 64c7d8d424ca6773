/* The executor: everything in one translation unit. handlers.inc is generated from the tables. */
#include "machine.h"
#include "memory.h"
#include "lds.h"
#include "atomics.h"
#include "packed.h"
#include "sparse.h"
#include "lanes.h"
#include "handlers.inc"
#include "schedule.h"

u64 layout(u32 which)
{
    u64 sizes[] = {sizeof(Operand), sizeof(Instruction), sizeof(Launch), sizeof(Range), sizeof handlers / sizeof *handlers};
    return which < 5 ? sizes[which] : 0;
}
