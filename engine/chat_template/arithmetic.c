/* Python's operators on values: arithmetic, comparison, slices. */
#include <math.h>
#include <string.h>

#include "engine/chat_template/render.h"
#include "engine/chat_template/text_operations.h"
#include "engine/chat_template/unicode.h"

static const char *const symbols[] = {[ADD] = "+",           [SUBTRACT] = "-", [MULTIPLY] = "*", [DIVIDE] = "/",
                                      [FLOOR_DIVIDE] = "//", [MODULO] = "%",   [POWER] = "**"};

static _Noreturn void fail_operands(struct render *render, enum arithmetic operation, struct value left,
                                    struct value right)
{
    if (left.kind == VALUE_UNDEFINED || right.kind == VALUE_UNDEFINED)
        render_fail(render, "'%.200s' is undefined, so '%s' cannot use it",
                    left.kind == VALUE_UNDEFINED ? left.hint : right.hint, symbols[operation]);
    render_fail(render, "'%s' does not work on a %s and a %s", symbols[operation], value_type_name(left),
                value_type_name(right));
}

static int64_t check_overflow(struct render *render, bool overflows, int64_t result)
{
    if (overflows)
        render_fail(render, "integer beyond 64 bits");
    return result;
}

static int64_t floor_divide(struct render *render, int64_t left, int64_t right)
{
    if (right == 0)
        render_fail(render, "division by zero");
    check_overflow(render, left == INT64_MIN && right == -1, 0);
    return left / right - (left % right != 0 && (left < 0) != (right < 0));
}

static int64_t integer_power(struct render *render, int64_t base, int64_t exponent)
{
    int64_t result = 1;
    bool overflows = false;
    if (base == 0 || base == 1 || base == -1) /* any exponent, but only its parity and zero matter */
        exponent = exponent == 0 ? 0 : 2 - exponent % 2;
    for (; exponent > 0 && !overflows; exponent--)
        overflows = __builtin_mul_overflow(result, base, &result);
    return check_overflow(render, overflows, result);
}

/* The whole quotient and the rest, which has the divisor's sign, as Python defines them for floats. */
static double divide_floor(double left, double right, double *rest)
{
    double remainder = fmod(left, right), quotient = (left - remainder) / right;
    if (remainder != 0 && (remainder < 0) != (right < 0)) {
        remainder += right;
        quotient -= 1;
    }
    *rest = remainder == 0 ? copysign(0, right) : remainder;
    return quotient == 0 ? copysign(0, left / right) : nearbyint(quotient);
}

static double raise_power(struct render *render, double base, double exponent)
{
    if ((base < 0 && exponent != floor(exponent)) || (base == 0 && exponent < 0))
        render_fail(render, "this power is not a real number");
    double result = pow(base, exponent);
    if (isinf(result) && isfinite(base) && isfinite(exponent))
        render_fail(render, "number too large");
    return result;
}

static struct value compute_float(struct render *render, enum arithmetic operation, double left, double right)
{
    if (right == 0 && (operation == DIVIDE || operation == FLOOR_DIVIDE || operation == MODULO))
        render_fail(render, "division by zero");
    double rest, quotient;
    switch (operation) {
    case ADD:
        return value_float(left + right);
    case SUBTRACT:
        return value_float(left - right);
    case MULTIPLY:
        return value_float(left * right);
    case DIVIDE:
        return value_float(left / right);
    case POWER:
        return value_float(raise_power(render, left, right));
    default:
        quotient = divide_floor(left, right, &rest);
        return value_float(operation == MODULO ? rest : quotient);
    }
}

static struct value compute_integer(struct render *render, enum arithmetic operation, int64_t left, int64_t right)
{
    int64_t result = 0;
    bool overflows = false;
    switch (operation) {
    case ADD:
        overflows = __builtin_add_overflow(left, right, &result);
        return value_int(check_overflow(render, overflows, result));
    case SUBTRACT:
        overflows = __builtin_sub_overflow(left, right, &result);
        return value_int(check_overflow(render, overflows, result));
    case MULTIPLY:
        overflows = __builtin_mul_overflow(left, right, &result);
        return value_int(check_overflow(render, overflows, result));
    case FLOOR_DIVIDE:
        return value_int(floor_divide(render, left, right));
    case MODULO:
        return value_int(right == -1 ? 0 : left - floor_divide(render, left, right) * right);
    case POWER:
        if (right >= 0)
            return value_int(integer_power(render, left, right));
        return compute_float(render, operation, (double)left, (double)right);
    default:
        return compute_float(render, operation, (double)left, (double)right);
    }
}

static struct value compute(struct render *render, enum arithmetic operation, struct value left, struct value right)
{
    struct value result;
    if (value_is_integral(left) && value_is_integral(right))
        result = compute_integer(render, operation, value_to_integer(left), value_to_integer(right));
    else
        result = compute_float(render, operation, value_to_float(left), value_to_float(right));
    return value_with_origin(result, left.from_template && right.from_template);
}

static struct value add_texts(struct render *render, const struct text *left, const struct text *right)
{
    struct builder builder = {0};
    bool is_safe = left->is_safe || right->is_safe;
    text_append_escaped(render, &builder, left, is_safe && !left->is_safe);
    text_append_escaped(render, &builder, right, is_safe && !right->is_safe);
    return text_mark_safe(render, builder_finish(render, &builder), is_safe);
}

static bool is_plain_sequence(struct value value)
{
    return value.kind == VALUE_SEQUENCE && value.sequence->flavour <= SEQUENCE_TUPLE;
}

static struct value add_sequences(struct render *render, struct value left, struct value right)
{
    const struct sequence *a = left.sequence, *b = right.sequence;
    render_count_steps(render, (a->count + b->count) / 8);
    struct value sum = value_sequence(render, a->flavour, a->count + b->count);
    for (size_t i = 0; i < a->count; i++)
        sequence_append(render, sum.sequence, a->items[i]);
    for (size_t i = 0; i < b->count; i++)
        sequence_append(render, sum.sequence, b->items[i]);
    return value_with_origin(sum, left.from_template && right.from_template);
}

/* 'ab' * 3, [0] * 3 */
static struct value repeat(struct render *render, struct value object, int64_t times)
{
    bool is_text = object.kind == VALUE_TEXT;
    size_t count = is_text ? object.text->length : object.sequence->count;
    if (count == 0 || times < 0)
        times = 0;
    render_count_steps(render, times > RENDER_STEP_LIMIT ? (size_t)RENDER_STEP_LIMIT + 1 : (size_t)times);
    if (is_text) {
        struct builder builder = {0};
        for (int64_t i = 0; i < times; i++)
            builder_append_text(render, &builder, object.text);
        return text_mark_safe(render, builder_finish(render, &builder), object.text->is_safe);
    }
    struct value list = value_sequence(render, object.sequence->flavour, 0);
    for (int64_t i = 0; i < times; i++)
        for (size_t k = 0; k < count; k++)
            sequence_append(render, list.sequence, object.sequence->items[k]);
    return list;
}

static bool is_repeatable(struct value value)
{
    return value.kind == VALUE_TEXT || is_plain_sequence(value);
}

struct value evaluate_arithmetic(struct render *render, enum arithmetic operation, struct value left,
                                 struct value right)
{
    if (value_is_number(left) && value_is_number(right))
        return compute(render, operation, left, right);
    if (operation == ADD && left.kind == VALUE_TEXT && right.kind == VALUE_TEXT)
        return add_texts(render, left.text, right.text);
    if (operation == ADD && is_plain_sequence(left) && is_plain_sequence(right) &&
        left.sequence->flavour == right.sequence->flavour)
        return add_sequences(render, left, right);
    if (operation == MULTIPLY && is_repeatable(left) && value_is_integral(right))
        return repeat(render, left, value_to_integer(right));
    if (operation == MULTIPLY && is_repeatable(right) && value_is_integral(left))
        return repeat(render, right, value_to_integer(left));
    if (operation == MODULO && left.kind == VALUE_TEXT)
        return format_percent(render, left.text, right);
    fail_operands(render, operation, left, right);
}

bool evaluate_comparison(struct render *render, enum comparison operation, struct value left, struct value right)
{
    switch (operation) {
    case EQUAL:
        return value_equals(render, left, right);
    case NOT_EQUAL:
        return !value_equals(render, left, right);
    case IN:
        return value_contains(render, right, left);
    case NOT_IN:
        return !value_contains(render, right, left);
    default:
        break;
    }
    enum order order = value_compare(render, left, right);
    switch (operation) {
    case LESS:
        return order == ORDER_LESS;
    case LESS_EQUAL:
        return order == ORDER_LESS || order == ORDER_EQUAL;
    case GREATER:
        return order == ORDER_GREATER;
    default:
        return order == ORDER_GREATER || order == ORDER_EQUAL;
    }
}

/* ---- slices ---- */

static int64_t read_bound(struct render *render, struct value bound, int64_t absent)
{
    if (bound.kind == VALUE_NONE)
        return absent;
    if (!value_is_integral(bound))
        render_fail(render, "a slice needs integers, not a %s", value_type_name(bound));
    return value_to_integer(bound);
}

/* A bound counted from the start, kept within [lowest, highest]. */
static int64_t clamp_bound(int64_t bound, int64_t length, int64_t lowest, int64_t highest)
{
    if (bound < 0)
        bound += length;
    return bound < lowest ? lowest : bound > highest ? highest : bound;
}

struct slice {
    int64_t start, stop, step;
};

static struct slice resolve_slice(struct render *render, const struct value bounds[3], int64_t length)
{
    int64_t step = read_bound(render, bounds[2], 1);
    if (step == 0)
        render_fail(render, "the step of a slice is zero");
    int64_t lowest = step > 0 ? 0 : -1, highest = step > 0 ? length : length - 1;
    struct slice slice = {.step = step, .start = step > 0 ? 0 : length - 1, .stop = step > 0 ? length : -1};
    if (bounds[0].kind != VALUE_NONE)
        slice.start = clamp_bound(read_bound(render, bounds[0], 0), length, lowest, highest);
    if (bounds[1].kind != VALUE_NONE)
        slice.stop = clamp_bound(read_bound(render, bounds[1], 0), length, lowest, highest);
    return slice;
}

/* The common slice of a string needs no list of its characters. */
static struct value slice_text_run(struct render *render, const struct text *text, struct slice slice)
{
    size_t from = 0;
    for (int64_t i = 0; i < slice.start; i++)
        from += unicode_length_of(text->bytes[from]);
    size_t to = from;
    for (int64_t i = slice.start; i < slice.stop; i++)
        to += unicode_length_of(text->bytes[to]);
    render_count_steps(render, to / 64);
    return value_part(render, text, from, to - from);
}

static struct value slice_range(struct render *render, const struct sequence *range, struct slice slice)
{
    const struct value *bounds = range->items + range->count; /* kept behind the items */
    int64_t first = value_to_integer(bounds[0]), step = value_to_integer(bounds[2]), new_step;
    if (__builtin_mul_overflow(step, slice.step, &new_step))
        render_fail(render, "integer beyond 64 bits");
    return value_range(render, first + slice.start * step, first + slice.stop * step, new_step);
}

struct value evaluate_slice(struct render *render, struct value object, const struct value bounds[3])
{
    bool is_text = object.kind == VALUE_TEXT;
    if (!is_text && (object.kind != VALUE_SEQUENCE || object.sequence->flavour > SEQUENCE_RANGE))
        render_fail(render, "a %s has no slices", value_type_name(object));
    struct slice slice = resolve_slice(render, bounds, (int64_t)value_length(render, object));
    if (is_text && slice.step == 1 && slice.start < slice.stop)
        return slice_text_run(render, object.text, slice);
    if (!is_text && object.sequence->flavour == SEQUENCE_RANGE)
        return slice_range(render, object.sequence, slice);
    struct builder builder = {0};
    struct value out = value_sequence(render, is_text ? SEQUENCE_LIST : object.sequence->flavour, 0);
    struct items items = value_iterate(render, object);
    for (int64_t i = slice.start; slice.step > 0 ? i < slice.stop : i > slice.stop;) {
        render_count_steps(render, 1);
        if (is_text)
            builder_append_text(render, &builder, items.items[i].text);
        else
            sequence_append(render, out.sequence, items.items[i]);
        if (__builtin_add_overflow(i, slice.step, &i))
            break;
    }
    if (!is_text)
        return value_with_origin(out, object.from_template);
    return text_mark_safe(render, builder_finish(render, &builder), object.text->is_safe);
}
