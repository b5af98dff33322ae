// SPDX-License-Identifier: MIT OR Apache-2.0
// Calls each function, as a program or, with PLUGIN, as a library that a program loads; with HOST it only loads.
#include <stdio.h>

#ifndef HOST
int EVP_CipherUpdate(void *, unsigned char *, int *, const unsigned char *,
		     int);
int EVP_EncryptUpdate(void *, unsigned char *, int *, const unsigned char *,
		      int);
int EVP_DecryptUpdate(void *, unsigned char *, int *, const unsigned char *,
		      int);
int EVP_Cipher(void *, unsigned char *, const unsigned char *, unsigned int);

static unsigned char in[8192], out[8192];
static int written;
#endif

#ifndef PLUGIN
#include <dlfcn.h>
#define NAME main
#else
#define NAME plugin
#endif

int NAME(int count, char **names)
{
#ifndef HOST
	printf("cipher %d", EVP_CipherUpdate(in, out, &written, in, 5000));
	printf(" written %d", written);
	printf(" encrypt %d", EVP_EncryptUpdate(in, out, &written, in, 512));
	printf(" decrypt %d", EVP_DecryptUpdate(in, out, &written, in, 512));
	printf(" tls12 %d", EVP_Cipher(in, out, in, 512));
	printf(" header %d", EVP_CipherUpdate(in, NULL, &written, in, 5000));
	printf(" short %d", EVP_CipherUpdate(in, out, &written, in, 511));
	printf(" negative %d\n", EVP_CipherUpdate(in, out, &written, in, -1));
#endif
#ifndef PLUGIN
	for (int i = 1; i < count; i++) {
		void *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
		int (*plugin)(int, char **) =
			library ? (int (*)(int, char **))dlsym(library,
							       "plugin") :
				  NULL;

		if (!plugin || plugin(0, NULL))
			return 1;
		dlclose(library);
	}
#endif
	return 0;
}
