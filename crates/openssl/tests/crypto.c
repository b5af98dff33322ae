// SPDX-License-Identifier: MIT OR Apache-2.0
// In libcrypto's place: each function returns COPY * 10, and 1 more if a wide section is open.
#define _GNU_SOURCE
#include <dlfcn.h>

static int answer(void)
{
	int (*end)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "tl_wide_end");
	int (*begin)(unsigned int) =
		(int (*)(unsigned int))dlsym(RTLD_DEFAULT, "tl_wide_begin");

	// Only an open section can be ended; it is opened again.
	if (!end || !begin || end())
		return COPY * 10;
	begin(2);
	return COPY * 10 + 1;
}

int EVP_CipherUpdate(void *context, unsigned char *out, int *written,
		     const unsigned char *bytes, int count)
{
	*written = count;
	return context && bytes ? answer() : -1;
}

int EVP_EncryptUpdate(void *context, unsigned char *out, int *written,
		      const unsigned char *bytes, int count)
{
	return EVP_CipherUpdate(context, out, written, bytes, count);
}

int EVP_DecryptUpdate(void *context, unsigned char *out, int *written,
		      const unsigned char *bytes, int count)
{
	return EVP_CipherUpdate(context, out, written, bytes, count);
}

int EVP_Cipher(void *context, unsigned char *out, const unsigned char *bytes,
	       unsigned int count)
{
	return context && bytes && count ? answer() : -1;
}
