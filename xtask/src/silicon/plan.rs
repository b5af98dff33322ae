// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rows that experiments have in common: no wide code, wide code under the kernel's scheduler,
//! and the same with each of the means by which Turbolane learns what is wide; with one wide CPU,
//! with automatic size, and on request with other sizes.
//!
//! Automatic size looks for a quarter of a second at what there is to win before it divides the
//! CPUs, and then compares (policy/standby.h). So its points have a longer load before them.

use crate::silicon::point::Point;
use crate::silicon::predicted::Simulated;
use crate::silicon::rows::{Planned, command};

/// The rows without Turbolane: without wide code, and the one that loses.
pub(crate) const NONE: &str = "none";
pub(crate) const WIDE: &str = "wide";

/// The kernel's scheduler, as the simulator has it.
const KERNEL: &str = "fair-hrtick";

/// The size of rows that do not name one.
const USUAL: &str = "1";
/// What users get.
pub(crate) const AUTO: &str = "auto";
/// Those on request: with one more than three, all CPUs of the web server would be wide.
const SIZES: [&str; 2] = ["2", "3"];

/// How Turbolane learns what is wide.
struct Detection {
    /// The row's name.
    name: &'static str,
    /// OpenSSL's code, as `tests/vm/src/openssl.rs` has it.
    code: &'static str,
    /// Arguments of `turbolane run`.
    run: Vec<String>,
    /// Of the simulator's lane.
    detect: &'static str,
    /// With a number of wide CPUs that is given; with automatic size always.
    with_usual_size: bool,
    /// For people.
    meaning: String,
}

/// An experiment whose wide code is OpenSSL's.
pub(crate) struct Plan<'a> {
    /// The load's command, with this code; `true` for a longer load before the point.
    pub(crate) command: &'a dyn Fn(&str, bool) -> Vec<String>,
    /// How long that load is, ns.
    pub(crate) long_warm_up_ns: u64,
    /// Files for the simulator.
    pub(crate) scenario: &'static str,
    pub(crate) machine: &'static str,
    /// The function that is marked.
    pub(crate) mark: &'static str,
    /// The program that OpenSSL's hints are preloaded into.
    pub(crate) hinted: &'static str,
}

impl Plan<'_> {
    /// All rows; with fixed sizes too if they are wanted.
    pub(crate) fn rows(&self, with_sizes: bool) -> Vec<Planned> {
        let mut rows = vec![
            self.plain(NONE, "none", "OpenSSL without AVX2 and AVX-512"),
            self.plain(WIDE, "", "OpenSSL with AVX-512"),
        ];
        for detection in self.detections() {
            if detection.with_usual_size {
                rows.push(self.under(&detection, USUAL));
            }
            rows.push(self.under(&detection, AUTO));
            if with_sizes && detection.with_usual_size {
                rows.extend(SIZES.map(|size| self.under(&detection, size)));
            }
        }
        rows
    }

    fn detections(&self) -> [Detection; 5] {
        let (mark, hinted) = (self.mark, self.hinted);
        let function = mark.rsplit_once('/').map_or(mark, |(_, function)| function);
        let meaning = |how: &str| format!("the same under turbolane run{how}");
        [
            Detection {
                name: "marks",
                code: "wide",
                run: command(&["--mark", mark]),
                detect: "mark",
                meaning: meaning(&format!(" --mark {function}")),
                with_usual_size: true,
            },
            Detection {
                name: "trap",
                code: "wide",
                run: command(&["--trap", "avx512"]),
                detect: "trap",
                meaning: meaning(" --trap avx512"),
                with_usual_size: true,
            },
            Detection {
                name: "hints",
                code: "hints",
                run: Vec::new(),
                detect: "hint",
                meaning: meaning(&format!(", {hinted} with libturbolane_openssl.so")),
                with_usual_size: true,
            },
            Detection {
                name: "preload",
                code: "marks",
                run: Vec::new(),
                detect: "hint",
                meaning: meaning(&format!(", {hinted} with libturbolane_marks.so")),
                with_usual_size: true,
            },
            // A score is of a task, and each of the web server's has wide code in each request:
            // a size that is given would have all of them on those CPUs.
            Detection {
                name: "scores",
                code: "wide",
                run: command(&["--scores", "on"]),
                detect: "score",
                meaning: meaning(" --scores on"),
                with_usual_size: false,
            },
        ]
    }

    /// A row under the kernel's scheduler.
    fn plain(&self, name: &str, variant: &'static str, meaning: &str) -> Planned {
        let point = Point { name: name.to_owned(), command: (self.command)(name, false) };
        let simulated = self.simulated(variant, KERNEL.to_owned(), None);
        let (meaning, none) = (meaning.to_owned(), NONE.to_owned());
        Planned { point, meaning, simulated, none, nothing: None }
    }

    /// A row under Turbolane with wide CPUs as `--wide-cpus` takes them.
    fn under(&self, detection: &Detection, wide: &str) -> Planned {
        let Detection { name, code, run, detect, meaning, .. } = detection;
        let (suffix, option) = match wide {
            USUAL => (String::new(), String::new()),
            _ => (format!("-{wide}"), format!(" --wide-cpus {wide}")),
        };
        let is_auto = wide == AUTO;
        let mut words = (self.command)(code, is_auto);
        words.extend(run.iter().cloned());
        words.extend(command(&["--wide-cpus", wide]));
        let point = Point { name: format!("{name}{suffix}"), command: words };
        let policy = format!("lane:detect={detect},wide={wide}");
        let simulated = self.simulated("", policy, is_auto.then_some(self.long_warm_up_ns));
        let (meaning, none) = (format!("{meaning}{option}"), NONE.to_owned());
        Planned { point, meaning, simulated, none, nothing: Some(WIDE.to_owned()) }
    }

    fn simulated(
        &self,
        variant: &'static str,
        policy: String,
        warm_up_ns: Option<u64>,
    ) -> Simulated {
        let Plan { scenario, machine, .. } = *self;
        Simulated { scenario, machine, variant, policy, warm_up_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(with_sizes: bool) -> Vec<Planned> {
        let load =
            |code: &str, is_long: bool| command(&["load", code, ["", "+9"][is_long as usize]]);
        let plan = Plan {
            command: &load,
            long_warm_up_ns: 9,
            scenario: "s.toml",
            machine: "m.toml",
            mark: "/lib/c.so:f@2",
            hinted: "p",
        };
        plan.rows(with_sizes)
    }

    #[test]
    fn each_row_is_measured_and_simulated_alike() {
        let rows = rows(true);
        let names: Vec<&str> = rows.iter().map(|row| row.point.name.as_str()).collect();
        assert_eq!(names[..5], ["none", "wide", "marks", "marks-auto", "marks-2"]);
        assert_eq!(names.len(), 2 + 4 * 4 + 1);
        assert_eq!(names[18], "scores-auto");
        let (auto, one) = (&rows[3], &rows[4]);
        let words = auto.point.command.join(" ");
        assert_eq!(words, "load wide +9 --mark /lib/c.so:f@2 --wide-cpus auto");
        assert_eq!((auto.simulated.warm_up_ns, one.simulated.warm_up_ns), (Some(9), None));
        let words = one.point.command.join(" ");
        assert_eq!(words, "load wide  --mark /lib/c.so:f@2 --wide-cpus 2");
        assert_eq!(one.simulated.policy, "lane:detect=mark,wide=2");
        assert_eq!(one.meaning, "the same under turbolane run --mark c.so:f@2 --wide-cpus 2");
        assert_eq!(rows[2].simulated.policy, "lane:detect=mark,wide=1");
    }

    #[test]
    fn rows_without_turbolane_have_no_arguments_for_it() {
        let rows = rows(false);
        assert_eq!(rows.len(), 11);
        assert_eq!(rows[8].point.command.join(" "), "load marks  --wide-cpus 1");
        for (row, variant) in rows.iter().zip(["none", ""]) {
            assert_eq!(row.point.command, ["load", &row.point.name, ""]);
            assert_eq!((row.simulated.variant, row.simulated.policy.as_str()), (variant, KERNEL));
            assert!(row.nothing.is_none());
        }
    }
}
