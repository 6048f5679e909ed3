/* cmocka.h with what it must be preceded by. */
#ifndef NJ_TESTS_PIPELINE_CMOCKA_HEADERS_H
#define NJ_TESTS_PIPELINE_CMOCKA_HEADERS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
