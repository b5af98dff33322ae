// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A 32-bit program that holds values in all of its AVX registers over signals
 * whose handler destroys them. The kernel keeps them in the frames of 32-bit
 * programs meanwhile: the old kind and the one with siginfo in turns.
 *
 *   frames32
 *
 * Exits with 0, or with 1 if a register was lost. Without a C library, which
 * guests do not have for 32 bits.
 */
#define ROUNDS 400
#define SPINS 20000 /* longer than the trap's hold time in the test */
#define WORDS 64    /* eight registers of 256 bits */

#define NR_EXIT 1
#define NR_GETPID 20
#define NR_RT_SIGACTION 174
#define SIGUSR1 10
#define SA_SIGINFO 4

struct action {
	void (*handler)(int);
	unsigned long flags;
	void (*restorer)(void);
	unsigned long mask[2];
};

static unsigned int held[WORDS], found[WORDS], others[WORDS];
static volatile unsigned int nr_handled;

static long call(long number, long a, long b, long c, long d)
{
	long result;

	__asm__ volatile("int $0x80"
			 : "=a"(result)
			 : "a"(number), "b"(a), "c"(b), "d"(c), "S"(d)
			 : "memory");
	return result;
}

#define EACH(text) ".irp n, 0,1,2,3,4,5,6,7\n" text "\n.endr\n"

static void on_signal(int number)
{
	(void)number;
	nr_handled++;
	__asm__ volatile(EACH("vmovdqu 32*\\n(%0), %%ymm\\n")
			 :
			 : "r"(others)
			 : "memory");
}

/* Loads the registers, waits, has the signal sent, and stores them. */
static void hold(long pid)
{
	unsigned int spins = SPINS;

	__asm__ volatile(
		EACH(
			"vmovdqu 32*\\n(%1), %%ymm\\n") "1: pause\n"
							"dec %0\n"
							"jnz 1b\n"
							"mov $37, %%eax\n" /* kill */
							"int $0x80\n" EACH(
								"vmovdqu "
								"%%ymm\\n, "
								"32*\\n(%2)") "vzeroupper\n"
		: "+r"(spins)
		: "S"(held), "D"(found), "b"(pid), "c"(SIGUSR1)
		: "eax", "memory");
}

static int round_is_good(unsigned int round, long pid)
{
	static struct action action;

	action.handler = on_signal;
	action.flags = round & 1 ? SA_SIGINFO : 0;
	call(NR_RT_SIGACTION, SIGUSR1, (long)&action, 0, 8);
	for (unsigned int i = 0; i < WORDS; i++) {
		held[i] = (round + 1) * 2654435761u + i;
		others[i] = ~held[i];
	}
	hold(pid);
	for (unsigned int i = 0; i < WORDS; i++)
		if (found[i] != held[i])
			return 0;
	return nr_handled == round + 1;
}

void _start(void)
{
	long pid = call(NR_GETPID, 0, 0, 0, 0);
	unsigned int round = 0;

	while (round < ROUNDS && round_is_good(round, pid))
		round++;
	call(NR_EXIT, round < ROUNDS, 0, 0, 0);
	__builtin_unreachable();
}
