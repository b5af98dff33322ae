// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Bursts of encryption (OpenSSL's ChaCha20-Poly1305) beside compression: what a
 * web server does with a page (SFMA 4, SYSTOR 4.1, THESIS 5.2), without the
 * network. Each burst encrypts what the compressor has made of the block, in
 * TLS records. See bursts.h for the requests, web-bursts.md for what came out.
 */
#include <openssl/crypto.h>
#include <openssl/evp.h>

#include "bursts.h"

/* The most that a record of TLS holds. */
#define RECORD (16 * 1024)

/* What a record begins with: authenticated, not encrypted. */
static const unsigned char header[5] = {23, 3, 3, 0, 0};
static const unsigned char key[32] = "a key of thirty-two letters....";
/* The same for all records, so that they can be compared; never do this. */
static const unsigned char nonce[12];

static EVP_CIPHER_CTX *cipher;
static unsigned char sealed[RECORD], tag[RESULT];

static void must(int done)
{
	if (done != 1)
		die("OpenSSL refuses to encrypt");
}

static void set_key(void)
{
	cipher = EVP_CIPHER_CTX_new();
	must(cipher != NULL);
	must(EVP_EncryptInit_ex(cipher, EVP_chacha20_poly1305(), NULL, key,
				NULL));
}

static void encrypt_record(const unsigned char *plain, int size)
{
	int done;

	must(EVP_EncryptInit_ex(cipher, NULL, NULL, NULL, nonce));
	must(EVP_EncryptUpdate(cipher, NULL, &done, header, sizeof(header)));
	must(EVP_EncryptUpdate(cipher, sealed, &done, plain, size));
	must(EVP_EncryptFinal_ex(cipher, sealed + done, &done));
	must(EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_AEAD_GET_TAG, sizeof(tag),
				 tag));
}

static void encrypt(void *unused)
{
	const unsigned char *end = packed + packed_size;

	(void)unused;
	for (const unsigned char *at = packed; at < end; at += RECORD)
		encrypt_record(at,
			       end - at < RECORD ? (int)(end - at) : RECORD);
}

static const char *capabilities(void)
{
	return OPENSSL_info(OPENSSL_INFO_CPU_SETTINGS);
}

int main(int argc, char **argv)
{
	const struct burst burst = {
		.program = "web-bursts",
		.prepare = set_key,
		.run = encrypt,
		.result = tag,
		.form = capabilities,
	};

	return bursts_main(&burst, argc, argv);
}
