/* Two clocks: the machine's, and one of the time in which this process could have heard something.
 *
 * Whoever stops the client (a debugger, a terminal, a machine that has no time for it) does not stop
 * what comes for it: that lies in its connections. Whether somebody has been silent for too long is
 * therefore measured in time that was really waited through: between two looks at the connections
 * the patient clock moves by PATIENT_MS at most.
 */
#include "mover.h"

#include <time.h>

static int64_t patient;

int64_t now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int64_t patient_ms(void) {
    return patient;
}

void patient_waited(int64_t ms) {
    patient += ms < PATIENT_MS ? ms : PATIENT_MS;
}
