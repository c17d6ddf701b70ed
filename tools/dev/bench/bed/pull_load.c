/* Consumers of a measurement that cost almost nothing: one connection, one pull in flight for each queue, remoting.
 *
 * pull_load HOST PORT TOPIC QUEUES backlog          reads every queue from 0 to its end
 * pull_load HOST PORT TOPIC QUEUES follow           reads on from the ends, held pulls, until it is given a line
 * pull_load HOST PORT TOPIC QUEUES push COUNT US    follows, and sends a message each US microseconds itself
 *
 * It prints "ready", waits for a line, works, and prints what it took as JSON. Latencies are from a send to what a
 * listener would see: the answer to the pull, whole. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define INPUT_BYTES (4 << 20)
#define QUEUES_MAX 64
#define PULL 11
#define SEND_V2 310
#define MAX_OFFSET 30
#define SUSPEND 2
#define SUBSCRIPTION 4
#define SUCCESS 0
#define NOT_FOUND 19
#define BODY_AT 84
#define SEND_OPAQUE 1000

struct connection { int fd; char *input; size_t have; };

static struct connection pulls, sends;
static const char *topic, *mode;
static int queues, is_backlog, is_push, is_follow, done_queues;
static uint64_t offsets[QUEUES_MAX], messages, bytes, wanted, *latencies, refused, sent;

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void fail(const char *what) { perror(what); exit(1); }

static uint32_t be32_at(const char *at) { uint32_t value; memcpy(&value, at, 4); return ntohl(value); }

static void send_all(int fd, const char *data, size_t count) {
    while (count) {
        ssize_t gone = send(fd, data, count, MSG_NOSIGNAL);
        if (gone < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        if (gone <= 0) fail("send");
        data += gone;
        count -= (size_t)gone;
    }
}

static void request(struct connection *to, int code, int opaque, const char *fields, const char *body, size_t body_bytes) {
    static char frame[16384];
    int header = snprintf(frame + 8, sizeof frame - 8,
        "{\"code\":%d,\"extFields\":{%s},\"flag\":0,\"language\":\"JAVA\",\"opaque\":%d,\"serializeTypeCurrentRPC\":\"JSON\","
        "\"version\":407}", code, fields, opaque);
    uint32_t whole = htonl((uint32_t)(4 + header) + (uint32_t)body_bytes), of_header = htonl((uint32_t)header);
    memcpy(frame, &whole, 4);
    memcpy(frame + 4, &of_header, 4);
    memcpy(frame + 8 + header, body, body_bytes);
    send_all(to->fd, frame, 8 + (size_t)header + body_bytes);
}

static void pull(int queue) {
    char fields[1024];
    snprintf(fields, sizeof fields,
        "\"consumerGroup\":\"bench_consumers\",\"topic\":\"%s\",\"queueId\":\"%d\",\"queueOffset\":\"%lu\",\"maxMsgNums\":\"32\","
        "\"sysFlag\":\"%d\",\"commitOffset\":\"0\",\"suspendTimeoutMillis\":\"15000\",\"subscription\":\"*\",\"subVersion\":\"0\","
        "\"expressionType\":\"TAG\"", topic, queue, offsets[queue], SUBSCRIPTION | (is_backlog ? 0 : SUSPEND));
    request(&pulls, PULL, queue, fields, "", 0);
}

static void send_one(void) {
    char fields[1024], body[128];
    memset(body, 'x', sizeof body);
    uint64_t began = now_ns();
    memcpy(body, &began, sizeof began);
    snprintf(fields, sizeof fields,
        "\"a\":\"bench_producers\",\"b\":\"%s\",\"c\":\"TBW102\",\"d\":\"%d\",\"e\":\"%d\",\"f\":\"0\",\"g\":\"1700000000000\",\"h\":\"0\","
        "\"i\":\"UNIQ_KEY\\u0001%032lu\\u0002WAIT\\u0001true\\u0002TAGS\\u0001TagA\",\"j\":\"0\",\"k\":\"false\",\"m\":\"false\"",
        topic, queues, (int)(sent % (uint64_t)queues), began);
    request(&sends, SEND_V2, SEND_OPAQUE, fields, body, sizeof body);
    sent++;
}

static long number_of(const char *header, size_t count, const char *name) {
    const char *at = memmem(header, count, name, strlen(name));
    return at ? strtol(at + strlen(name), NULL, 10) : -1;
}

static void take_messages(const char *at, const char *end) {
    uint64_t now = now_ns();
    while (end - at > BODY_AT + 4) {
        uint32_t size = be32_at(at);
        if (is_push && messages < wanted) {
            uint64_t began;
            memcpy(&began, at + BODY_AT + 4, sizeof began);
            latencies[messages] = now - began;
        }
        messages++;
        at += size;
    }
}

static void one_answer(const char *frame, size_t count) {
    size_t header = be32_at(frame + 4) & 0xFFFFFF;
    const char *text = frame + 8;
    long code = number_of(text, header, "\"code\":"), queue = number_of(text, header, "\"opaque\":");
    if (queue == SEND_OPAQUE) { refused += code != SUCCESS; return; }
    long next = number_of(text, header, "\"nextBeginOffset\":\"");
    if (queue < 0 || queue >= queues || next < 0) {
        fprintf(stderr, "answered %ld: %.*s\n", code, (int)header, text);
        exit(1);
    }
    offsets[queue] = (uint64_t)next;
    if (code == SUCCESS) {
        take_messages(text + header, frame + count);
        bytes += count - 8 - header;
    } else if (is_backlog && code == NOT_FOUND) { done_queues++; return; }
    pull((int)queue);
}

static void take(struct connection *of) {
    ssize_t count = recv(of->fd, of->input + of->have, INPUT_BYTES - of->have, 0);
    if (count <= 0) fail("the broker hung up");
    of->have += (size_t)count;
    size_t at = 0;
    while (of->have - at >= 4) {
        uint32_t length = be32_at(of->input + at);
        if (length > INPUT_BYTES - 4) { fprintf(stderr, "an answer of %u bytes\n", length); exit(1); }
        if (of->have - at - 4 < length) break;
        one_answer(of->input + at, length + 4);
        at += length + 4;
    }
    memmove(of->input, of->input + at, of->have - at);
    of->have -= at;
}

static void connect_to(struct connection *of, const char *host, const char *port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    int one = 1;
    inet_pton(AF_INET, host, &address.sin_addr);
    of->fd = socket(AF_INET, SOCK_STREAM, 0);
    of->input = malloc(INPUT_BYTES);
    if (connect(of->fd, (struct sockaddr *)&address, sizeof address)) fail("connect");
    setsockopt(of->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

static void find_ends(void) {
    for (int queue = 0; queue < queues; queue++) {
        char fields[512];
        snprintf(fields, sizeof fields, "\"topic\":\"%s\",\"queueId\":\"%d\"", topic, queue);
        request(&pulls, MAX_OFFSET, queue, fields, "", 0);
        while (pulls.have < 4 || pulls.have < 4 + be32_at(pulls.input)) {
            ssize_t count = recv(pulls.fd, pulls.input + pulls.have, INPUT_BYTES - pulls.have, 0);
            if (count <= 0) fail("the broker hung up");
            pulls.have += (size_t)count;
        }
        long end = number_of(pulls.input + 8, pulls.have - 8, "\"offset\":\"");
        if (end < 0) { fprintf(stderr, "no end of queue %d: %.*s\n", queue, (int)pulls.have - 8, pulls.input + 8); exit(1); }
        offsets[queue] = (uint64_t)end;
        pulls.have = 0;
    }
}

static int timer_of(long us) {
    int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    struct itimerspec each = {.it_interval = {us / 1000000, us % 1000000 * 1000}, .it_value = {us / 1000000, us % 1000000 * 1000}};
    timerfd_settime(fd, 0, &each, NULL);
    return fd;
}

static void work(long interval_us) {
    struct pollfd watched[4] = {
        {.fd = pulls.fd, .events = POLLIN}, {.fd = is_follow ? 0 : -1, .events = POLLIN},
        {.fd = is_push ? sends.fd : -1, .events = POLLIN}, {.fd = is_push ? timer_of(interval_us) : -1, .events = POLLIN}};
    for (int queue = 0; queue < queues; queue++) pull(queue);
    while (is_backlog ? done_queues < queues : is_push ? messages < wanted : 1) {
        int count = poll(watched, 4, 20000);
        if (count == 0) { fprintf(stderr, "nothing came in 20 s: %lu messages\n", messages); exit(1); }
        if (count < 0 && errno != EINTR) fail("poll");
        if (watched[0].revents) take(&pulls);
        if (watched[2].revents) take(&sends);
        if (watched[3].revents) {
            uint64_t times;
            if (read(watched[3].fd, &times, sizeof times) > 0 && sent < wanted) send_one();
        }
        if (watched[1].revents) return;
    }
}

static int by_size(const void *one, const void *other) {
    uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
    return a < b ? -1 : a > b;
}

int main(int count, char **given) {
    if (count < 6) { fprintf(stderr, "HOST PORT TOPIC QUEUES backlog|follow|push [COUNT US]\n"); return 2; }
    topic = given[3]; queues = atoi(given[4]); mode = given[5];
    is_backlog = !strcmp(mode, "backlog"); is_push = !strcmp(mode, "push"); is_follow = !strcmp(mode, "follow");
    if (queues < 1 || queues > QUEUES_MAX || (is_push && count < 8)) return 2;
    wanted = is_push ? strtoull(given[6], NULL, 10) : 0;
    latencies = calloc(wanted + 1, sizeof *latencies);
    connect_to(&pulls, given[1], given[2]);
    if (is_push) connect_to(&sends, given[1], given[2]);
    if (!is_backlog) find_ends();
    printf("ready\n");
    fflush(stdout);
    if (getchar() == EOF) return 1;
    uint64_t began = now_ns();
    work(is_push ? atol(given[7]) : 0);
    double seconds = (double)(now_ns() - began) / 1e9;
    uint64_t of = is_push ? wanted : 0;
    qsort(latencies, of, sizeof *latencies, by_size);
    printf("{\"seconds\": %.6f, \"messages\": %lu, \"bytes\": %lu, \"failed\": %lu, \"p50_us\": %.1f, \"p99_us\": %.1f}\n",
           seconds, messages, bytes, refused, (double)latencies[of / 2] / 1e3, (double)latencies[of ? of - 1 - of / 100 : 0] / 1e3);
    return 0;
}
