/* The first process of the virtual machine that tests run in (tools/run_in_vm.py).
 *
 * The host's files are there read-only through virtiofs, with an overlay in memory above them, so
 * that nothing done here reaches the host. /m/NN.ko of the initramfs are loaded in their order;
 * /run is a shell script, whose end is the machine's: its status is written as the last line. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void over(int code) {
  printf("\nGSCHED-VM-EXIT %d\n", code);
  fflush(stdout);
  /* What is on its way through the serial line must arrive. */
  for (;;) {
    usleep(200000);
    reboot(RB_AUTOBOOT);
  }
}

static void die(const char *what) {
  printf("init: %s: %s\n", what, strerror(errno));
  over(125);
}

static void put(const char *source, const char *target, const char *type, unsigned long flags,
                const char *options) {
  mkdir(target, 0755);
  if (mount(source, target, type, flags, options) != 0) die(target);
}

static void load_modules(void) {
  struct dirent **names;
  int count = scandir("/m", &names, NULL, alphasort);
  for (int i = 0; i < count; i++) {
    char path[300];
    if (names[i]->d_name[0] == '.') continue;
    snprintf(path, sizeof path, "/m/%s", names[i]->d_name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || (syscall(SYS_finit_module, fd, "", 0) != 0 && errno != EEXIST)) die(path);
    close(fd);
  }
}

static char *script(void) {
  static char text[65536];
  int fd = open("/run", O_RDONLY);
  if (fd < 0 || read(fd, text, sizeof text - 1) < 0) die("/run");
  close(fd);
  return text;
}

static void loopback(void) {
  struct ifreq request = {.ifr_name = "lo"};
  int fd = socket(AF_INET, SOCK_DGRAM, 0);
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &request) != 0) die("lo");
  close(fd);
}

int main(void) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  puts("init: the kernel has started");
  char *what = script();
  load_modules();
  put("root", "/lower", "virtiofs", MS_RDONLY, "");
  put("tmpfs", "/upper", "tmpfs", 0, "size=60%");
  mkdir("/upper/u", 0755);
  mkdir("/upper/w", 0755);
  put("overlay", "/new", "overlay", 0, "lowerdir=/lower,upperdir=/upper/u,workdir=/upper/w");
  put("proc", "/new/proc", "proc", 0, "");
  put("sys", "/new/sys", "sysfs", 0, "");
  put("dev", "/new/dev", "devtmpfs", 0, "");
  put("pts", "/new/dev/pts", "devpts", 0, "ptmxmode=0666");
  put("shm", "/new/dev/shm", "tmpfs", 0, "mode=1777");
  put("cgroup2", "/new/sys/fs/cgroup", "cgroup2", 0, "nsdelegate");
  symlink("/proc/self/fd", "/new/dev/fd");
  loopback();
  sethostname("gsched-vm", 9);
  if (chdir("/new") != 0 || mount(".", "/", NULL, MS_MOVE, NULL) != 0 || chroot(".") != 0 ||
      chdir("/") != 0)
    die("the host's files");
  int status = 0;
  pid_t child = fork();
  if (child == 0) {
    setsid();
    char *words[] = {"/bin/sh", "-c", what, NULL};
    char *environment[] = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                           "HOME=/root", "LANG=C.UTF-8", NULL};
    execve(words[0], words, environment);
    die(words[0]);
  }
  while (waitpid(-1, &status, 0) != child)
    ;
  over(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}
