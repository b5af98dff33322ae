// SPDX-License-Identifier: MIT OR Apache-2.0
// Encrypts with the real OpenSSL, authenticates a header, decrypts, and prints a sum of what came out.
#include <stdio.h>
#include <string.h>

void *EVP_CIPHER_CTX_new(void);
int EVP_CIPHER_CTX_reset(void *);
const void *EVP_chacha20_poly1305(void);
int EVP_CipherInit_ex(void *, const void *, void *, const unsigned char *,
		      const unsigned char *, int);
int EVP_CipherUpdate(void *, unsigned char *, int *, const unsigned char *,
		     int);
int EVP_EncryptUpdate(void *, unsigned char *, int *, const unsigned char *,
		      int);
int EVP_DecryptUpdate(void *, unsigned char *, int *, const unsigned char *,
		      int);

static unsigned char plain[20000], secret[20000], again[20000];

int main(void)
{
	static const unsigned char key[32] = "key", nonce[12] = "nonce";
	void *context = EVP_CIPHER_CTX_new();
	unsigned int sum = 0;
	int written = 0, total = 0;

	for (unsigned int i = 0; i < sizeof(plain); i++)
		plain[i] = i * 7;
	if (!EVP_CipherInit_ex(context, EVP_chacha20_poly1305(), NULL, key,
			       nonce, 1) ||
	    !EVP_CipherUpdate(context, NULL, &written, plain, 13) ||
	    !EVP_CipherUpdate(context, secret, &written, plain, 16000))
		return 1;
	total = written;
	if (!EVP_EncryptUpdate(context, secret + total, &written, plain + total,
			       4000) ||
	    total + written != 20000)
		return 2;
	if (!EVP_CIPHER_CTX_reset(context) ||
	    !EVP_CipherInit_ex(context, EVP_chacha20_poly1305(), NULL, key,
			       nonce, 0) ||
	    !EVP_DecryptUpdate(context, again, &written, secret, 20000) ||
	    written != 20000)
		return 3;
	if (memcmp(plain, again, sizeof(plain)))
		return 4;
	for (unsigned int i = 0; i < sizeof(secret); i++)
		sum = sum * 31 + secret[i];
	printf("%u\n", sum);
	return 0;
}
