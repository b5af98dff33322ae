// SPDX-License-Identifier: MIT OR Apache-2.0
//! `turbolane sample` on this machine: a program whose wide function is known is found, with its
//! share.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use report::sample::SampleReport;

use crate::schemas::follows;
use crate::turbolane;

/// Four fifths of its CPU time in `burn`: 256-bit FMA, as dense as it gets; the rest in scalar
/// code. By turns of some ms: a virtual machine's timer interrupts come up to 0.1 ms late, so that
/// turns as short as that lost a quarter of their samples to the code after them (0.67 to 0.72 for
/// 0.8, where turns of 10 ms and more give 0.79 to 0.80).
const PROGRAM: &str = r#"
#include <immintrin.h>
#include <time.h>
static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec + 1e-9 * t.tv_nsec;
}
__attribute__((noinline, target("avx2,fma"))) float burn(long n)
{
	__m256 a[8], b = _mm256_set1_ps(1.0f);
	for (int i = 0; i < 8; i++)
		a[i] = b;
	while (n--)
		for (int i = 0; i < 8; i++)
			a[i] = _mm256_fmadd_ps(a[i], b, b);
	for (int i = 1; i < 8; i++)
		a[0] = _mm256_add_ps(a[0], a[i]);
	return _mm256_cvtss_f32(a[0]);
}
__attribute__((noinline)) long plain(long n)
{
	volatile long sum = 0;
	while (n--)
		sum += n;
	return sum;
}
volatile float sink;
int main(void)
{
	double wide = 0, scalar = 0;
	for (;;) {
		double begun = now();
		if (wide <= 4 * scalar) {
			sink = burn(5000000);
			wide += now() - begun;
		} else {
			plain(5000000);
			scalar += now() - begun;
		}
	}
}
"#;

/// The program, built in this folder; `None` where that, or running it, is impossible.
pub(crate) fn burner(folder: &Path) -> Option<PathBuf> {
    let (source, program) = (folder.join("burn.c"), folder.join("burner"));
    std::fs::write(&source, PROGRAM).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-fno-omit-frame-pointer", "-o"]).args([&program, &source]);
    let is_built = cc.status().is_ok_and(|status| status.success());
    (is_built && std::is_x86_feature_detected!("fma")).then_some(program)
}

#[test]
fn the_wide_function_of_a_program_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = burner(folder.path()) else {
        return eprintln!("skipped (77): a C compiler and a CPU with FMA are needed");
    };
    let mut burner = Command::new(&program).stdout(Stdio::null()).spawn().unwrap();
    let pid = burner.id().to_string();
    let sample = |format| {
        let sample = ["sample", "--pid", &pid, "--for", "2s", "--format", format];
        turbolane().args(sample).output().unwrap()
    };
    let (page, profile) = (folder.path().join("wide.html"), folder.path().join("wide.pb.gz"));
    let (json, folded) = (sample("json"), sample("folded"));
    let files = ["sample", "--pid", &pid, "--for", "1s", "--html"];
    let written = turbolane().args(files).arg(&page).arg("--pprof").arg(&profile).output().unwrap();
    burner.kill().unwrap();
    burner.wait().unwrap();
    if json.status.code() == Some(77) {
        return eprintln!("skipped (77): {}", String::from_utf8_lossy(&json.stderr));
    }
    assert_eq!(json.status.code(), Some(1), "{}", String::from_utf8_lossy(&json.stderr));
    follows("sample", &json.stdout);
    let report: SampleReport = serde_json::from_slice(&json.stdout).unwrap();
    let [burn] = report.offenders.as_slice() else { panic!("{:?}", report.offenders) };
    assert_eq!((burn.function.as_str(), burn.process.as_str()), ("burn", "burner"));
    assert_eq!((burn.license_level, report.wide()), (1, burn.samples));
    // its other code comes right after: all of it is its own victim
    let own = report.victims.iter().find(|victim| victim.process == "burner").unwrap();
    let share = burn.samples as f64 / (burn.samples + own.of) as f64;
    assert!((share - 0.8).abs() < 0.1, "{share} of {} samples", burn.samples + own.of);
    let folded = String::from_utf8(folded.stdout).unwrap();
    let chain = folded.lines().find(|line| line.contains("burn [level 1]"));
    assert!(chain.is_some_and(|chain| chain.starts_with("burner;")), "{folded}");
    assert_eq!(written.status.code(), Some(1), "{}", String::from_utf8_lossy(&written.stderr));
    assert!(std::fs::read_to_string(page).unwrap().contains("\"function\":\"burn\""));
    assert_eq!(std::fs::read(profile).unwrap()[..2], [0x1f, 0x8b], "gzip");
}
