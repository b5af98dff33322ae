// SPDX-License-Identifier: MIT OR Apache-2.0
// The same as hint.c, with sections that close themselves.
#include <iostream>
#include <numeric>
#include <vector>

#include <turbolane.h>

int main()
{
	std::vector<float> a(4096, 1.0f), b(4096, 2.0f);
	float sum = 0;

	std::cout << "scheduler: " << tl_wide_status() << "\n";
	for (int i = 0; i < 1000; i++) {
		turbolane::wide_section section(2); // 2: heavy 512-bit code
		sum += std::inner_product(a.begin(), a.end(), b.begin(), 0.0f);
	}
	std::cout << "sum: " << sum << "\n";
	return tl_wide_end() == 0; // all sections are closed: refused
}
