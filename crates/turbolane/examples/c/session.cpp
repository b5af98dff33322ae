// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The session of session.c from C++: restored when it goes out of scope.
#include <cstdio>
#include <memory>
#include <turbolane.h>

struct close_session {
	void operator()(tl_session *session) const
	{
		tl_close(session);
	}
};

int main(int argc, char **argv)
{
	tl_session *opened;
	int err = tl_open(argc > 1 ? argv[1] : nullptr, TL_WAY_AUTO, &opened);
	if (err) {
		std::fprintf(stderr, "%s\n", tl_strerror(err));
		return 1;
	}
	std::unique_ptr<tl_session, close_session> session(opened);
	struct tl_speeds speeds;
	err = tl_speeds(session.get(), 0, &speeds);
	if (err)
		std::printf("speeds: %s\n", tl_strerror(err));
	else
		std::printf("speeds: %u %u %u\n", speeds.slow_khz, speeds.base_khz,
			    speeds.turbo_khz);
	std::printf("boost: %s\n", tl_strerror(tl_boost(session.get(), 0)));
	return 0;
}
