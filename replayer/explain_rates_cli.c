/* SPDX-License-Identifier: Apache-2.0 */
/* Rates of estimates: written as people write them, `disk=1.8GB/s`, and where they come from. */
#include "replayer/explain_cli.h"
#include "traces/cli_settings.h"

#include <ctype.h>

enum { RATES = 3 };

static const char *const names[RATES] = {"disk", "link", "device"};

/* A local disk; memory to device over a PCIe 5 link; a direct reload on an H200 (docs/measurements). */
static const lp_cli_rates defaults = {.disk = 1800000000, .link = 50000000000, .device = 1880000000000};

void lp_cli_rates_default(lp_cli_rates *rates)
{
    *rates = defaults;
}

static int64_t *rate_of(lp_cli_rates *rates, const char *name, size_t bytes)
{
    int64_t *const list[RATES] = {&rates->disk, &rates->link, &rates->device};
    for (int i = 0; i < RATES; i++)
        if (strlen(names[i]) == bytes && memcmp(names[i], name, bytes) == 0)
            return list[i];
    return NULL;
}

/* "1.8GB/s", "900 MiB/s", "52000000000": digits with at most one point, then a unit, of which "/s" may be left out. */
static bool parse_rate(const char *text, size_t bytes, int64_t *rate)
{
    static const char letters[] = "KMGT";
    const char *p = text, *const end = text + bytes;
    double value = 0, place = 1;
    int digits = 0;
    for (bool is_fraction = false; p < end && (isdigit((unsigned char)*p) || (*p == '.' && !is_fraction)); p++) {
        if (*p == '.') {
            is_fraction = true;
            continue;
        }
        place = is_fraction ? place / 10 : 1;
        value = is_fraction ? value + place * (*p - '0') : value * 10 + (*p - '0');
        digits++;
    }
    while (p < end && *p == ' ')
        p++;
    const char *letter = p < end && *p != '\0' ? strchr(letters, *p) : NULL;
    if (letter != NULL) {
        const bool is_binary = ++p < end && *p == 'i';
        p += is_binary;
        for (const char *k = letters; k <= letter; k++)
            value *= is_binary ? 1024 : 1000;
    }
    if (p < end && *p == 'B')
        p++;
    if (end - p == 2 && memcmp(p, "/s", 2) == 0)
        p += 2;
    if (digits == 0 || p != end || value < 1 || value > 9e18)
        return false;
    *rate = (int64_t)value;
    return true;
}

static int wrong_rate(lp_cli *cli, const char *text, size_t bytes)
{
    return lp_cli_usage(cli, "a rate is disk=, link= or device= and a number such as 1.8GB/s, not '%.*s'", (int)bytes,
                        text);
}

static int read_list(lp_cli_rates *rates, lp_cli *cli)
{
    for (const char *p = lp_cli_text(cli, "rate", ""); *p != '\0';) {
        const size_t bytes = strcspn(p, ",");
        const char *equals = memchr(p, '=', bytes);
        int64_t *rate = equals != NULL ? rate_of(rates, p, (size_t)(equals - p)) : NULL;
        if (rate == NULL || !parse_rate(equals + 1, bytes - (size_t)(equals + 1 - p), rate))
            return wrong_rate(cli, p, bytes);
        p += bytes + (p[bytes] == ',');
    }
    return 0;
}

static int read_settings(lp_cli_rates *rates, lp_cli *cli)
{
    lp_cli_settings settings;
    int code = lp_cli_settings_open(&settings, cli);
    for (int i = 0; code == 0 && i < RATES; i++) {
        char key[32];
        snprintf(key, sizeof key, "rate.%s", names[i]);
        const char *value = lp_settings_find(settings.list, key);
        if (value != NULL && !parse_rate(value, strlen(value), rate_of(rates, names[i], strlen(names[i])))) {
            lp_error err;
            lp_fail(&err, LP_E_FORMAT, "'%s' of '%s' is no rate such as 1.8GB/s: '%s'", key,
                    lp_cli_settings_relative(&settings, settings.path), value);
            code = lp_cli_fail(cli, &err);
        }
    }
    lp_cli_settings_close(&settings);
    return code;
}

int lp_cli_rates_read(lp_cli_rates *rates, lp_cli *cli)
{
    *rates = defaults;
    int code = read_settings(rates, cli);
    if (code == 0)
        code = read_list(rates, cli);
    if (code != 0)
        return code;
    if (!lp_cli_bytes(cli, "disk-rate", rates->disk, &rates->disk) ||
        !lp_cli_bytes(cli, "link-rate", rates->link, &rates->link))
        return LP_EXIT_USAGE;
    if (rates->disk < 1 || rates->link < 1)
        return lp_cli_usage(cli, "a rate is at least 1 byte a second");
    return 0;
}

int64_t lp_cli_duration_ns(int64_t bytes, int64_t rate)
{
    return (int64_t)((double)bytes / (double)rate * 1e9);
}

const char *lp_cli_duration(char buffer[32], int64_t bytes, int64_t rate)
{
    const double value = (double)bytes / (double)rate;
    if (value >= 10)
        snprintf(buffer, 32, "%.0f s", value);
    else if (value >= 1)
        snprintf(buffer, 32, "%.1f s", value);
    else if (value >= 1e-3)
        snprintf(buffer, 32, "%.0f ms", value * 1e3);
    else
        snprintf(buffer, 32, "%.0f us", value * 1e6);
    return buffer;
}
