/* Where the nodes of a step call back: a listener on all addresses, and a secret that proves a
 * caller to be of the step. */
#include "client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

int listener = -1;
unsigned short listen_port;
unsigned char listen_secret[SECRET_BYTES];

static int bound(int family, unsigned short port) {
    static const int off = 0;
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    int failed;
    if (family == AF_INET6)
        failed = setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) ||
                 bind(fd, (struct sockaddr *)&six, sizeof six);
    else
        failed = bind(fd, (struct sockaddr *)&four, sizeof four);
    if (failed || listen(fd, SOMAXCONN) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* IPv6 and IPv4 on one socket; IPv4 alone where the kernel has no IPv6. */
static int bound_to(unsigned short port) {
    int fd = bound(AF_INET6, port);
    return fd >= 0 ? fd : bound(AF_INET, port);
}

/* Inside SrunPortRange=FIRST-LAST where the site's firewall leaves only that open. */
static int bound_in_range(void) {
    char range[64];
    unsigned first, last, start;
    if (!conf_value("srunportrange", range, sizeof range) ||
        sscanf(range, "%u-%u", &first, &last) != 2 || !first || first > last || last > 65535)
        return bound_to(0);
    if (getrandom(&start, sizeof start, 0) != (ssize_t)sizeof start)
        start = 0;
    for (unsigned i = 0, count = last - first + 1; i < count; i++) {
        int fd = bound_to((unsigned short)(first + (start + i) % count));
        if (fd >= 0)
            return fd;
    }
    return -1;
}

bool listener_open(void) {
    struct sockaddr_storage at;
    socklen_t size = sizeof at;
    if (getrandom(listen_secret, SECRET_BYTES, 0) != SECRET_BYTES)
        return false;
    listener = bound_in_range();
    if (listener < 0 || getsockname(listener, (struct sockaddr *)&at, &size) != 0)
        return false;
    listen_port = ntohs(at.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&at)->sin6_port
                                                 : ((struct sockaddr_in *)&at)->sin_port);
    return true;
}

void listener_field(char out[80]) {
    int at = sprintf(out, "%hu ", listen_port);
    for (size_t i = 0; i < SECRET_BYTES; i++)
        at += sprintf(out + at, "%02x", listen_secret[i]);
}
