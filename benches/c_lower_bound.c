/* The least work of the engine, as a plain C program would do it: JSON bytes, values, conditions, rules that begin to match.
 *
 * It believes every byte: a payload is one flat object without spaces, of numbers under known names. It packs no rows, checks no
 * number, keeps no times and no units, and knows rules of numbers only. Compiled and called by c_lower_bound.py. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { METRICS = 8, CONDITIONS = 16, RULES = 8, NAME = 24 };

typedef struct {
    char key[NAME]; /* with quotes and colon */
    int length;
} Name;

typedef struct {
    uint8_t metric_count, condition_count, rule_count, matched;
    uint8_t names[METRICS], metric[CONDITIONS], comparator[CONDITIONS], end[RULES]; /* end: of the rule's conditions */
    uint32_t rule_no[RULES];
    double value[METRICS], threshold[CONDITIONS];
} Device;

static Name *names;
static Device *devices;

void setup(int metrics, const char *const *keys, uint32_t count) {
    free(names), free(devices);
    names = calloc(metrics, sizeof *names);
    for (int i = 0; i < metrics; i++) {
        names[i].length = (int)strlen(keys[i]);
        memcpy(names[i].key, keys[i], names[i].length);
    }
    devices = calloc(count + 1, sizeof *devices);
}

void set_device(uint32_t number, int metrics, const uint8_t *own, int rules, const uint8_t *ends, const uint32_t *rule_nos,
                const uint8_t *metric, const uint8_t *comparator, const double *threshold) {
    Device *d = &devices[number];
    d->metric_count = metrics, d->rule_count = rules, d->condition_count = rules ? ends[rules - 1] : 0;
    memcpy(d->names, own, metrics);
    memcpy(d->end, ends, rules);
    memcpy(d->rule_no, rule_nos, rules * sizeof *rule_nos);
    memcpy(d->metric, metric, d->condition_count);
    memcpy(d->comparator, comparator, d->condition_count);
    memcpy(d->threshold, threshold, d->condition_count * sizeof *threshold);
}

static const char *number(const char *at, double *value) {
    static const double power[] = {1, 10, 100, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9};
    int negative = *at == '-', decimals = 0;
    int64_t digits = 0;
    for (at += negative; (unsigned)(*at - '0') < 10; at++) digits = digits * 10 + (*at - '0');
    if (*at == '.')
        for (at++; (unsigned)(*at - '0') < 10; at++, decimals++) digits = digits * 10 + (*at - '0');
    *value = (double)(negative ? -digits : digits) / power[decimals];
    return at;
}

static const char *member(Device *d, int place, const char *at) {
    for (int k = 0; k < d->metric_count; k++) {
        int slot = (place + k) % d->metric_count;
        const Name *name = &names[d->names[slot]];
        if (memcmp(at, name->key, name->length) == 0) return number(at + name->length, &d->value[slot]);
    }
    abort();
}

static int holds(double value, int comparator, double threshold) {
    switch (comparator) {
    case 0: return value > threshold;
    case 1: return value >= threshold;
    case 2: return value < threshold;
    case 3: return value <= threshold;
    case 4: return value == threshold;
    default: return value != threshold;
    }
}

static unsigned matching(const Device *d) {
    unsigned matched = 0;
    for (int rule = 0, i = 0; rule < d->rule_count; rule++) {
        unsigned all = 1;
        for (; i < d->end[rule]; i++) all &= holds(d->value[d->metric[i]], d->comparator[i], d->threshold[i]);
        matched |= all << rule;
    }
    return matched;
}

/* The rules that fire, in order; returns how many. Payloads lie one behind the other, each ends where `ends` says. */
int64_t ingest(int64_t count, const uint32_t *numbers, const int64_t *ends, const char *payloads, uint32_t *fired) {
    int64_t found = 0;
    for (int64_t i = 0; i < count; i++) {
        Device *d = &devices[numbers[i]];
        if (i + 8 < count) __builtin_prefetch(&devices[numbers[i + 8]]), __builtin_prefetch((char *)&devices[numbers[i + 8]] + 64),
            __builtin_prefetch((char *)&devices[numbers[i + 8]] + 128), __builtin_prefetch((char *)&devices[numbers[i + 8]] + 192);
        const char *at = payloads + (i ? ends[i - 1] : 0), *end = payloads + ends[i];
        for (int place = 0; at < end - 1; place++) at = member(d, place, at + 1);
        unsigned matched = matching(d), began = matched & ~d->matched;
        d->matched = matched;
        for (; began; began &= began - 1) fired[found++] = d->rule_no[__builtin_ctz(began)];
    }
    return found;
}
