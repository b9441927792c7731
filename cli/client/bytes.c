/* Bytes that grow, numbers on the wire, reads and writes that are whole. */
#include "client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void *grown(struct buffer *b, size_t more) {
    if (b->used + more > b->room) {
        size_t room = b->room ? b->room : 4096;
        while (room < b->used + more)
            room *= 2;
        char *data = realloc(b->data, room);
        if (!data)
            return NULL;
        b->data = data;
        b->room = room;
    }
    void *at = b->data + b->used;
    b->used += more;
    return at;
}

void put32(void *to, size_t value) {
    unsigned char *at = to;
    at[0] = (unsigned char)(value >> 24);
    at[1] = (unsigned char)(value >> 16);
    at[2] = (unsigned char)(value >> 8);
    at[3] = (unsigned char)value;
}

size_t get32(const void *from) {
    const unsigned char *at = from;
    return (size_t)at[0] << 24 | (size_t)at[1] << 16 | (size_t)at[2] << 8 | at[3];
}

bool write_all(int fd, const char *data, size_t size) {
    while (size) {
        ssize_t n = write(fd, data, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        data += n;
        size -= (size_t)n;
    }
    return true;
}

bool read_all(int fd, char *data, size_t size) {
    while (size) {
        ssize_t n = read(fd, data, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        data += n;
        size -= (size_t)n;
    }
    return true;
}
