/* Functions with a stack of their own that hand the thread to each other. x86-64, System V. */
#ifndef NJ_TESTS_EMULATOR_FIBER_H
#define NJ_TESTS_EMULATOR_FIBER_H

#include <stddef.h>

struct fiber {
    void *stack_pointer; /* while it does not run */
    const void *stack;   /* lowest address and size: what AddressSanitizer is told */
    size_t stack_bytes;
};

/* The first switch to `fiber` calls `entry`, which never returns. The stack is borrowed. */
void fiber_prepare(struct fiber *fiber, void *stack, size_t stack_bytes, void (*entry)(void));

/* Goes on with `to`, until something switches back to `from`. `is_last`: nothing will. */
void fiber_switch(struct fiber *from, struct fiber *to, int is_last);

/* What `entry` calls first; `from`: the fiber that it was reached from. */
void fiber_begin(struct fiber *from);

#endif
