/* old_kernel PROGRAM [ARGUMENT...]: runs it as on Linux 4.18, the kernel of RHEL 8. System calls that came later fail with
 * ENOSYS, for the program and for all that it starts. What a kernel does in calls that it has had for long (FUSE, above all)
 * is not changed: that is `--kernel-profile`. Run it as root: without "no new privileges", so that fusermount3 keeps its own. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The last one of 4.18; numbers only grow. */
#define LAST_CALL __NR_rseq

int main(int count, char **arguments) {
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, LAST_CALL, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof rules / sizeof *rules, rules};
    if (count < 2) {
        fprintf(stderr, "old_kernel PROGRAM [ARGUMENT...]\n");
        return 2;
    }
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
        perror("old_kernel: seccomp");
        return 125;
    }
    /* openat2(2) of 5.6, with arguments that no kernel takes. */
    if (syscall(437, -1, NULL, NULL, 0) != -1 || errno != ENOSYS) {
        fprintf(stderr, "old_kernel: the filter lets newer calls through\n");
        return 125;
    }
    execvp(arguments[1], arguments + 1);
    perror(arguments[1]);
    return 127;
}
