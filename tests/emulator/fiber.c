#include "tests/emulator/fiber.h"

#include <stdint.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#include <sanitizer/common_interface_defs.h>
#define __SANITIZE_ADDRESS__ 1
#endif
#endif

/* Saves what a called function must keep, takes the other stack and restores the same from there. */
void fiber_switch_stacks(void **save, void *load);
__asm__(".text\n"
        ".globl fiber_switch_stacks\n"
        ".type fiber_switch_stacks, @function\n"
        "fiber_switch_stacks:\n"
        "    push %rbp\n"
        "    push %rbx\n"
        "    push %r12\n"
        "    push %r13\n"
        "    push %r14\n"
        "    push %r15\n"
        "    mov %rsp, (%rdi)\n"
        "    mov %rsi, %rsp\n"
        "    pop %r15\n"
        "    pop %r14\n"
        "    pop %r13\n"
        "    pop %r12\n"
        "    pop %rbx\n"
        "    pop %rbp\n"
        "    ret\n"
        ".size fiber_switch_stacks, . - fiber_switch_stacks\n");

enum { SAVED_REGISTERS = 6 };

void fiber_prepare(struct fiber *fiber, void *stack, size_t stack_bytes, void (*entry)(void))
{
    void **top = (void **)((char *)stack + stack_bytes);
    *--top = NULL; /* where `entry` would return to; keeps the stack aligned as after a call */
    *--top = (void *)(uintptr_t)entry;
    for (int i = 0; i < SAVED_REGISTERS; i++)
        *--top = NULL;
    *fiber = (struct fiber){.stack_pointer = top, .stack = stack, .stack_bytes = stack_bytes};
}

#if defined(__SANITIZE_ADDRESS__)

void fiber_switch(struct fiber *from, struct fiber *to, int is_last)
{
    void *fake_stack = NULL;
    __sanitizer_start_switch_fiber(is_last ? NULL : &fake_stack, to->stack, to->stack_bytes);
    fiber_switch_stacks(&from->stack_pointer, to->stack_pointer);
    __sanitizer_finish_switch_fiber(fake_stack, NULL, NULL);
}

/* The stack that the first fiber was reached from is the system's: only here is it to be learnt. */
void fiber_begin(struct fiber *from)
{
    const void *stack;
    size_t bytes;
    __sanitizer_finish_switch_fiber(NULL, &stack, &bytes);
    from->stack = stack;
    from->stack_bytes = bytes;
}

#else

void fiber_switch(struct fiber *from, struct fiber *to, int is_last)
{
    (void)is_last;
    fiber_switch_stacks(&from->stack_pointer, to->stack_pointer);
}

void fiber_begin(struct fiber *from)
{
    (void)from;
}

#endif
