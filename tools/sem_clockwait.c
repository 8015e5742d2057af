/* A sem_clockwait that ThreadSanitizer sees, for tools/sanitize.
 *
 * CPython takes a lock with a deadline by sem_clockwait. The ThreadSanitizer of GCC 12 intercepts sem_timedwait and
 * not sem_clockwait, so that it does not know which accesses such a lock orders, and reports races that there are not.
 * Here the one is made of the other: a deadline on any clock becomes one on the clock of the day. */
#define _GNU_SOURCE
#include <errno.h>
#include <semaphore.h>
#include <time.h>

enum { kNanosecondsPerSecond = 1000000000 };

static struct timespec add(struct timespec a, struct timespec b, int sign) {
    struct timespec sum = {a.tv_sec + sign * b.tv_sec, a.tv_nsec + sign * b.tv_nsec};
    if (sum.tv_nsec < 0) {
        sum.tv_sec -= 1;
        sum.tv_nsec += kNanosecondsPerSecond;
    } else if (sum.tv_nsec >= kNanosecondsPerSecond) {
        sum.tv_sec += 1;
        sum.tv_nsec -= kNanosecondsPerSecond;
    }
    return sum;
}

int sem_clockwait(sem_t* semaphore, clockid_t clock, const struct timespec* deadline) {
    struct timespec now, today;
    if (clock_gettime(clock, &now) != 0 || clock_gettime(CLOCK_REALTIME, &today) != 0) return -1;
    struct timespec left = add(*deadline, now, -1);
    struct timespec until = left.tv_sec < 0 ? today : add(today, left, 1);
    return sem_timedwait(semaphore, &until);
}
