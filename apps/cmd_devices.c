/* quern devices: what this machine can compute on, each opened and compared with the reference. */
#include <stdio.h>

#include <quern/device.h>

#include "build_parts.h"
#include "model_app.h"

enum { ROOM = 17 };

typedef struct feature {
    uint32_t bit;
    const char *name;
} feature;

static const feature features[] = {
    {QN_DEVICE_F16_STORAGE, "f16 storage"}, {QN_DEVICE_F16_ARITHMETIC, "f16 arithmetic"},
    {QN_DEVICE_INT8_DOT, "int8 dot"},       {QN_DEVICE_COOPERATIVE, "cooperative matrix"},
    {QN_DEVICE_TIMESTAMPS, "timestamps"},   {QN_DEVICE_UNIFIED, "unified memory"},
    {QN_DEVICE_SOFTWARE, "software"},
};
enum { FEATURES = sizeof features / sizeof *features };

static void print_text(const qn_device_info *d) {
    printf("%s:%d  %s\n", d->backend, d->index, d->name);
    printf("  driver    %s", d->driver);
    if (d->api_version)
        printf(", Vulkan %u.%u.%u", d->api_version >> 22 & 127, d->api_version >> 12 & 1023, d->api_version & 4095);
    printf("\n  memory    %.1f GiB\n", (double)d->memory_bytes / (1024.0 * 1024.0 * 1024.0));
    if (d->n_cores) printf("  cores     %u\n", d->n_cores);
    if (d->subgroup) printf("  subgroup  %u lanes\n", d->subgroup);
    printf("  features ");
    int any = 0;
    for (int i = 0; i < FEATURES; i++)
        if (d->features & features[i].bit) printf("%s %s", any++ ? "," : "", features[i].name);
    printf("%s\n  kernels   for %u of %d ops\n", any ? "" : " none", d->n_kernels, (int)QN_OP_COUNT);
    printf("  verdict   %s\n", d->verdict);
}

static void print_quoted(const char *s) {
    putchar('"');
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\') printf("\\%c", c);
        else if (c < 0x20) printf("\\u%04x", c);
        else putchar(c);
    }
    putchar('"');
}

static void print_json(const qn_device_info *d) {
    printf("{\"backend\": \"%s\", \"index\": %d, \"name\": ", d->backend, d->index);
    print_quoted(d->name);
    printf(", \"driver\": ");
    print_quoted(d->driver);
    printf(", \"memory_bytes\": %llu, \"cores\": %u, \"subgroup\": %u, \"kernels\": %u, \"trusted\": %s, \"features\": [",
           (unsigned long long)d->memory_bytes, d->n_cores, d->subgroup, d->n_kernels,
           d->features & QN_DEVICE_TRUSTED ? "true" : "false");
    int any = 0;
    for (int i = 0; i < FEATURES; i++)
        if (d->features & features[i].bit) printf("%s\"%s\"", any++ ? ", " : "", features[i].name);
    printf("], \"verdict\": ");
    print_quoted(d->verdict);
    printf("}");
}

static void print_lacks(int json) {
    const build_part *row = build_lacks;
    int width = 9; /* of the devices' own lines */
    for (; row->part; row++) width = (int)strlen(row->part) > width ? (int)strlen(row->part) : width;
    row = build_lacks;
    if (!json) printf("this build lacks%s\n", row->part ? "" : " nothing");
    else printf(",\n \"lacks\": [");
    for (; row->part; row++) {
        if (!json) {
            printf("  %-*s %s\n", width, row->part, row->why);
            continue;
        }
        printf("%s{\"part\": ", row > build_lacks ? ",\n  " : "");
        print_quoted(row->part);
        printf(", \"why\": ");
        print_quoted(row->why);
        printf("}");
    }
    if (json) printf("]}\n");
}

typedef struct device_words {
    int json;
} device_words;

static const option_row rows[] = {OPTION(device_words, json, "--json", NULL, "print the same for machines"), {0}};
static const option_group groups[] = {{NULL, rows, 0}, {0}};

static int run(const quern_verb *self, int argc, char **argv) {
    static qn_device_info list[ROOM];
    qn_error error = {QN_OK, ""};
    device_words w = {0};
    int n = 0, rc = options_read(self, argc, argv, &w);
    if (rc != APP_OK) return rc;
    if (qn_device_list(list, ROOM, &n, &error) != QN_OK) {
        fprintf(stderr, "quern devices: %s\n", error.text);
        return APP_FAILED;
    }
    if (n > ROOM) n = ROOM;
    for (int i = 0; i < n; i++) {
        if (!w.json) print_text(&list[i]);
        else printf("%s", i ? ",\n  " : "{\"devices\": [");
        if (w.json) print_json(&list[i]);
    }
    if (w.json) printf("]");
    print_lacks(w.json);
    if (error.text[0] && !build_lacks_why("Vulkan")) fprintf(stderr, "quern devices: no Vulkan device: %s\n", error.text);
    return APP_OK;
}

const quern_verb verb_devices = {
    .name = "devices",
    .brief = "list what this machine can compute on, and what this build lacks",
    .run = run,
    .usage = "[--json]",
    .about = "Lists the devices that Quern can compute on: name, driver, memory, features, and what the self-test of "
             "each says. Then what this build lacks, and why.",
    .groups = groups};
