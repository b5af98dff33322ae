// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A program that gets new code, in the ways that programs do. Each line of its
 * input names one; it answers with a line, and undoes it at the line "undo".
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define BYTES 4096

static void *map(int protection, int flags, int fd)
{
	return mmap(NULL, BYTES, protection, MAP_PRIVATE | flags, fd, 0);
}

/* The new memory; MAP_FAILED if there is none. */
static void *change(const char *how)
{
	if (!strcmp(how, "data\n"))
		return map(PROT_READ | PROT_WRITE, MAP_ANONYMOUS, -1);
	if (!strcmp(how, "file\n"))
		return map(PROT_READ | PROT_EXEC, 0,
			   open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
	if (!strcmp(how, "anonymous\n"))
		return map(PROT_READ | PROT_EXEC, MAP_ANONYMOUS, -1);
	if (!strcmp(how, "protect\n")) {
		void *page = map(PROT_READ | PROT_WRITE, MAP_ANONYMOUS, -1);

		if (page != MAP_FAILED && mprotect(page, BYTES, PROT_EXEC))
			return MAP_FAILED;
		return page;
	}
	return MAP_FAILED;
}

int main(void)
{
	void *page = NULL;
	char how[32];

	puts("ready");
	fflush(stdout);
	while (fgets(how, sizeof(how), stdin)) {
		int failed;

		if (!strcmp(how, "undo\n"))
			failed = munmap(page, BYTES);
		else if (!strcmp(how, "library\n"))
			failed = !dlopen("libcrypto.so.3", RTLD_NOW);
		else
			failed = (page = change(how)) == MAP_FAILED;
		puts(failed ? "failed" : "done");
		fflush(stdout);
	}
	return 0;
}
