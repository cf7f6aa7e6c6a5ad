/* SPDX-License-Identifier: Apache-2.0 */
/* Families of names: the template of a name, its indices, and a table of families. */
#include "traces/family.h"

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Length of the index part at `part` (digits up to a dot or the end), or 0. */
static size_t index_length(const char *part)
{
    size_t n = 0;
    while (is_digit(part[n]))
        n++;
    return n > 0 && (part[n] == '.' || part[n] == '\0') ? n : 0;
}

size_t lp_family_template(const char *name, char *buffer, size_t buffer_bytes)
{
    size_t length = 0;
    bool at_start = true;
    for (const char *p = name; *p != '\0';) {
        const size_t digits = at_start ? index_length(p) : 0;
        const char c = digits > 0 ? '*' : *p;
        if (length + 1 < buffer_bytes)
            buffer[length] = c;
        length++;
        at_start = c == '.' && digits == 0;
        p += digits > 0 ? digits : 1;
    }
    if (buffer_bytes > 0)
        buffer[length < buffer_bytes ? length : buffer_bytes - 1] = '\0';
    return length;
}

/* The value of an index part, or -1 when it is not the shortest form of a number below 2^63. */
static int64_t index_value(const char *part, size_t digits)
{
    if (digits > 1 && part[0] == '0')
        return -1;
    int64_t value = 0;
    for (size_t i = 0; i < digits; i++)
        if (!lp_mul(value, 10, &value) || !lp_add(value, part[i] - '0', &value))
            return -1;
    return value;
}

int lp_family_indices(const char *name, int64_t *index, int most)
{
    int count = 0;
    for (const char *p = name; *p != '\0';) {
        const size_t digits = index_length(p);
        if (digits > 0) {
            if (count < most)
                index[count] = index_value(p, digits);
            count++;
        }
        while (*p != '\0' && *p != '.')
            p++;
        if (*p == '.')
            p++;
    }
    return count;
}

/* Digit strings by value; leading zeros do not count. */
static int compare_digits(const char *a, size_t na, const char *b, size_t nb)
{
    while (na > 1 && *a == '0') {
        a++;
        na--;
    }
    while (nb > 1 && *b == '0') {
        b++;
        nb--;
    }
    if (na != nb)
        return na < nb ? -1 : 1;
    return memcmp(a, b, na);
}

int lp_family_compare(const char *a, const char *b)
{
    const char *p = a, *q = b;
    bool at_start = true;
    while (*p != '\0' && *q != '\0') {
        const size_t np = at_start ? index_length(p) : 0, nq = at_start ? index_length(q) : 0;
        if (np > 0 && nq > 0) {
            const int order = compare_digits(p, np, q, nq);
            if (order != 0)
                return order;
            p += np;
            q += nq;
            at_start = false;
            continue;
        }
        if (*p != *q)
            return (unsigned char)*p < (unsigned char)*q ? -1 : 1;
        at_start = *p == '.';
        p++;
        q++;
    }
    if (*p != *q)
        return *p == '\0' ? -1 : 1;
    return strcmp(a, b); /* differ at most in leading zeros */
}

/* ---- table ---- */

void lp_families_init(lp_families *f, const lp_alloc *alloc)
{
    *f = (lp_families){.alloc = alloc};
    lp_strings_init(&f->templates, alloc);
}

void lp_families_free(lp_families *f)
{
    lp_strings_free(&f->templates);
    lp_release(f->alloc, f->item);
    lp_families_init(f, f->alloc);
}

int64_t lp_families_add(lp_families *f, const char *name)
{
    char small[512];
    char *text = small;
    const size_t bytes = lp_family_template(name, small, sizeof small);
    if (bytes >= sizeof small) {
        text = lp_allocate(f->alloc, bytes + 1);
        if (text == NULL)
            return -1;
        lp_family_template(name, text, bytes + 1);
    }
    const int64_t family = lp_strings_add(&f->templates, text, bytes);
    if (text != small)
        lp_release(f->alloc, text);
    if (family < 0 || !lp_grow(f->alloc, (void **)&f->item, &f->capacity, family + 1, sizeof *f->item))
        return -1;
    if (family == f->count) {
        f->item[family] = (lp_family_item){.members = 0, .first = name};
        f->count++;
    }
    f->item[family].members++;
    return family;
}

int64_t lp_families_find(const lp_families *f, const char *name)
{
    char text[8192];
    const size_t bytes = lp_family_template(name, text, sizeof text);
    return bytes < sizeof text ? lp_strings_find(&f->templates, text, bytes) : -1;
}

const char *lp_families_text(const lp_families *f, int64_t family)
{
    return f->templates.text[family];
}
