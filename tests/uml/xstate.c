// SPDX-License-Identifier: Apache-2.0
/*
 * Preloaded into the User-Mode-Linux process. Its kernel holds 2,696 octets of a process's vector registers, and writes as many back; the host refuses
 * that (EFAULT) where its processors have more, AMX for example. So the rest is written as zeros. The host takes no more than it has.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

enum { ROOM = 1 << 16, STATES = 512 };

/* Components that lie within what the guest's kernel holds: x87 to PKRU, bits 0 to 9. */
static const unsigned long held = 0x3ff;

long ptrace(enum __ptrace_request request, ...)
{
    static long (*next)(enum __ptrace_request, ...);
    static unsigned char whole[ROOM];   /* one thread, which is not interrupted here */
    va_list arguments;
    va_start(arguments, request);
    pid_t pid = va_arg(arguments, pid_t);
    void *address = va_arg(arguments, void *);
    struct iovec *data = va_arg(arguments, struct iovec *);
    va_end(arguments);
    if (!next)
        next = (long (*)(enum __ptrace_request, ...))dlsym(RTLD_NEXT, "ptrace");
    if (request != PTRACE_SETREGSET || address != (void *)NT_X86_XSTATE || data->iov_len > ROOM)
        return next(request, pid, address, data);
    memcpy(whole, data->iov_base, data->iov_len);
    unsigned long states;
    memcpy(&states, whole + STATES, sizeof states);
    states &= held;
    memcpy(whole + STATES, &states, sizeof states);
    struct iovec extended = {whole, ROOM};
    return next(request, pid, address, &extended);
}
