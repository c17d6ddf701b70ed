/* Producers of a measurement that cost almost nothing: many connections, some sends in flight on each, remoting.
 *
 * send_load HOST PORT CONNECTIONS IN_FLIGHT BODY_BYTES BATCH FORM QUEUES LEVEL TOPIC WARM MESSAGES
 * BATCH 0: code 310; else code 320 with so many messages. FORM: json or binary. LEVEL 0: nothing is delayed. It warms
 * up, prints "ready", waits for a line, sends MESSAGES messages, and prints what it took as JSON. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define INPUT_BYTES 65536
#define OPAQUE_FIRST 1000000000L
#define KEY_DIGITS 32

struct slot { uint64_t sent_ns; };
struct connection {
    int fd;
    char *frame;            /* one request; opaque and key are changed in it */
    size_t frame_bytes, opaque_at, key_at;
    char input[INPUT_BYTES];
    size_t have;
    char *output;
    size_t out_from, out_to;
    struct slot *slots;
};

static int is_json, batch, in_flight, connections;
static long body_bytes;
static uint64_t keys, sent, answered, wanted, failed, *latencies;

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void fail(const char *what) { perror(what); exit(1); }

static char *be32(char *to, uint32_t value) { value = htonl(value); memcpy(to, &value, 4); return to + 4; }
static char *be16(char *to, uint16_t value) { value = htons(value); memcpy(to, &value, 2); return to + 2; }

static char *field(char *to, const char *name, const char *value) {
    size_t count = strlen(value);
    to = be16(to, (uint16_t)strlen(name));
    to = stpcpy(to, name);
    to = be32(to, (uint32_t)count);
    memcpy(to, value, count);
    return to + count;
}

static char *body_of(char *to) {
    if (!batch) { memset(to, 'x', (size_t)body_bytes); return to + body_bytes; }
    for (int k = 0; k < batch; k++) {
        to = be32(to, (uint32_t)(22 + body_bytes));
        to = be32(be32(be32(to, 0), 0), 0);
        to = be32(to, (uint32_t)body_bytes);
        memset(to, 'x', (size_t)body_bytes);
        to = be16(to + body_bytes, 0);
    }
    return to;
}

static void make_frame(struct connection *of, int number, int queues, int level, const char *topic) {
    char properties[256], queue[16], *header;
    const char *name_end = is_json ? "\\u0001" : "\001", *pair_end = is_json ? "\\u0002" : "\002";
    const char *is_batch = batch ? "true" : "false";
    of->frame = malloc(4096 + (size_t)(batch ? batch : 1) * (size_t)(body_bytes + 32));
    snprintf(queue, sizeof queue, "%d", number % queues);
    snprintf(properties, sizeof properties, "UNIQ_KEY%s%032d%sWAIT%strue%sTAGS%sTagA",
             name_end, 0, pair_end, name_end, pair_end, name_end);
    if (level) snprintf(properties + strlen(properties), 32, "%sDELAY%s%d", pair_end, name_end, level);
    header = of->frame + 8;
    if (is_json) {
        int count = sprintf(header,
            "{\"code\":%d,\"extFields\":{\"a\":\"bench_producers\",\"b\":\"%s\",\"c\":\"TBW102\",\"d\":\"%d\",\"e\":\"%s\","
            "\"f\":\"0\",\"g\":\"1700000000000\",\"h\":\"0\",\"i\":\"%s\",\"j\":\"0\",\"k\":\"false\",\"m\":\"%s\"},\"flag\":0,"
            "\"language\":\"JAVA\",\"opaque\":%ld,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":407}",
            batch ? 320 : 310, topic, queues, queue, properties, is_batch, OPAQUE_FIRST);
        of->opaque_at = (size_t)(strstr(header, "\"opaque\":") + 9 - of->frame);
        header += count;
    } else {
        char number_of_queues[16], *fields;
        snprintf(number_of_queues, sizeof number_of_queues, "%d", queues);
        header = be16(header, batch ? 320 : 310);
        *header++ = 0;
        header = be16(header, 407);
        of->opaque_at = (size_t)(header - of->frame);
        header = be32(be32(be32(header, 0), 0), 0);
        fields = header;
        header = field(field(field(header + 4, "a", "bench_producers"), "b", topic), "c", "TBW102");
        header = field(field(field(header, "d", number_of_queues), "e", queue), "f", "0");
        header = field(field(field(header, "g", "1700000000000"), "h", "0"), "i", properties);
        header = field(field(field(header, "j", "0"), "k", "false"), "m", is_batch);
        be32(fields, (uint32_t)(header - fields - 4));
    }
    char *unique = memmem(of->frame + 8, (size_t)(header - of->frame - 8), "UNIQ_KEY", 8);
    of->key_at = (size_t)(unique - of->frame) + 8 + strlen(name_end);
    char *end = body_of(header);
    of->frame_bytes = (size_t)(end - of->frame);
    be32(of->frame, (uint32_t)(of->frame_bytes - 4));
    be32(of->frame + 4, (is_json ? 0u : 1u << 24) | (uint32_t)(header - of->frame - 8));
    of->output = malloc(of->frame_bytes * (size_t)in_flight);
    of->slots = calloc((size_t)in_flight, sizeof *of->slots);
}

static void queue_one(struct connection *of, int slot) {
    static const char digits[] = "0123456789ABCDEF";
    uint64_t key = ++keys;
    char opaque[16];
    for (int k = KEY_DIGITS - 1; k >= KEY_DIGITS - 16; k--, key >>= 4) of->frame[of->key_at + (size_t)k] = digits[key & 15];
    if (is_json) {
        snprintf(opaque, sizeof opaque, "%ld", OPAQUE_FIRST + slot);
        memcpy(of->frame + of->opaque_at, opaque, 10);
    } else be32(of->frame + of->opaque_at, (uint32_t)(OPAQUE_FIRST + slot));
    memcpy(of->output + of->out_to, of->frame, of->frame_bytes);
    of->out_to += of->frame_bytes;
    of->slots[slot].sent_ns = now_ns();
    sent++;
}

static void flush(struct connection *of) {
    while (of->out_from < of->out_to) {
        ssize_t count = send(of->fd, of->output + of->out_from, of->out_to - of->out_from, MSG_NOSIGNAL);
        if (count < 0 && errno == EAGAIN) {
            struct timespec pause = {0, 20000};
            nanosleep(&pause, NULL);
            continue;
        }
        if (count <= 0) fail("send");
        of->out_from += (size_t)count;
    }
    of->out_from = of->out_to = 0;
}

static void one_answer(struct connection *of, const char *frame, size_t count) {
    long code, slot;
    if (frame[4] == 0) {
        const char *opaque = memmem(frame + 8, count - 8, "\"opaque\":", 9), *told = memmem(frame + 8, count - 8, "\"code\":", 7);
        code = told ? strtol(told + 7, NULL, 10) : -1;
        slot = opaque ? strtol(opaque + 9, NULL, 10) - OPAQUE_FIRST : -1;
    } else {
        uint16_t short_code; uint32_t long_opaque;
        memcpy(&short_code, frame + 8, 2); memcpy(&long_opaque, frame + 13, 4);
        code = ntohs(short_code); slot = (long)ntohl(long_opaque) - OPAQUE_FIRST;
    }
    if (slot < 0 || slot >= in_flight) { fprintf(stderr, "an answer to nothing\n"); exit(1); }
    if (code != 0) {
        if (!failed++) fprintf(stderr, "answered %ld: %.*s\n", code, (int)(count > 400 ? 400 : count) - 8, frame + 8);
    }
    latencies[answered++] = now_ns() - of->slots[slot].sent_ns;
    if (sent < wanted) queue_one(of, (int)slot);
}

static void take(struct connection *of) {
    ssize_t count = recv(of->fd, of->input + of->have, INPUT_BYTES - of->have, 0);
    if (count < 0 && errno == EAGAIN) return;
    if (count <= 0) fail("the broker hung up");
    of->have += (size_t)count;
    size_t at = 0;
    while (of->have - at >= 4) {
        uint32_t length;
        memcpy(&length, of->input + at, 4);
        length = ntohl(length);
        if (length > INPUT_BYTES - 4) { fprintf(stderr, "an answer of %u bytes\n", length); exit(1); }
        if (of->have - at - 4 < length) break;
        one_answer(of, of->input + at, length + 4);
        at += length + 4;
    }
    memmove(of->input, of->input + at, of->have - at);
    of->have -= at;
    flush(of);
}

static double run(struct connection *all, int events_fd, uint64_t messages) {
    struct epoll_event events[256];
    uint64_t began = now_ns();
    sent = answered = 0;
    wanted = batch ? (messages + (uint64_t)batch - 1) / (uint64_t)batch : messages;
    latencies = malloc((wanted + (uint64_t)(connections * in_flight)) * sizeof *latencies);
    for (int slot = 0; slot < in_flight; slot++)
        for (int k = 0; k < connections; k++) if (sent < wanted) queue_one(&all[k], slot);
    for (int k = 0; k < connections; k++) flush(&all[k]);
    while (answered < wanted) {
        int count = epoll_wait(events_fd, events, 256, 20000);
        if (count == 0) { fprintf(stderr, "no answer in 20 s, %lu of %lu\n", answered, wanted); exit(1); }
        if (count < 0 && errno != EINTR) fail("epoll_wait");
        for (int k = 0; k < count; k++) take(events[k].data.ptr);
    }
    return (double)(now_ns() - began) / 1e9;
}

static int by_size(const void *one, const void *other) {
    uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
    return a < b ? -1 : a > b;
}

int main(int count, char **given) {
    if (count != 13) { fprintf(stderr, "HOST PORT CONNECTIONS IN_FLIGHT BODY_BYTES BATCH FORM QUEUES LEVEL TOPIC WARM MESSAGES\n"); return 2; }
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(given[2]))};
    inet_pton(AF_INET, given[1], &address.sin_addr);
    connections = atoi(given[3]); in_flight = atoi(given[4]); body_bytes = atol(given[5]); batch = atoi(given[6]);
    is_json = !strcmp(given[7], "json");
    keys = now_ns() << 8;
    struct connection *all = calloc((size_t)connections, sizeof *all);
    int events_fd = epoll_create1(0), one = 1;
    for (int k = 0; k < connections; k++) {
        all[k].fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(all[k].fd, (struct sockaddr *)&address, sizeof address)) fail("connect");
        setsockopt(all[k].fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        fcntl(all[k].fd, F_SETFL, O_NONBLOCK);
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &all[k]};
        epoll_ctl(events_fd, EPOLL_CTL_ADD, all[k].fd, &event);
        make_frame(&all[k], k, atoi(given[8]), atoi(given[9]), given[10]);
    }
    run(all, events_fd, strtoull(given[11], NULL, 10));
    failed = 0;
    printf("ready\n");
    fflush(stdout);
    if (getchar() == EOF) return 1;
    double seconds = run(all, events_fd, strtoull(given[12], NULL, 10));
    qsort(latencies, answered, sizeof *latencies, by_size);
    printf("{\"seconds\": %.6f, \"requests\": %lu, \"messages\": %lu, \"failed\": %lu, \"p50_us\": %.1f, \"p99_us\": %.1f}\n",
           seconds, answered, answered * (uint64_t)(batch ? batch : 1), failed,
           (double)latencies[answered / 2] / 1e3, (double)latencies[answered - 1 - answered / 100] / 1e3);
    return 0;
}
