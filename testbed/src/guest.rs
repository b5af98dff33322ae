// SPDX-License-Identifier: MIT OR Apache-2.0
//! A guest, described; [`Guest::run`] boots it.

use std::path::PathBuf;
use std::time::Duration;

use crate::emulator::{Emulator, Silicon};
use crate::{Cache, Images};

/// A virtual machine that boots, runs one command and powers off.
///
/// ```no_run
/// # fn main() -> anyhow::Result<()> {
/// let cache = testbed::Cache::open()?;
/// let images = testbed::prepare(&cache)?;
/// let outcome = testbed::Guest::new(&cache, &images).cpus(2).run(&["nproc"])?;
/// assert_eq!(outcome.stdout, "2\n");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Guest {
    pub(crate) cache: Cache,
    pub(crate) images: Images,
    pub(crate) emulator: Emulator,
    pub(crate) cpus: u32,
    pub(crate) memory_mib: u32,
    pub(crate) topology: Option<String>,
    pub(crate) cpu: String,
    pub(crate) icount_shift: Option<u8>,
    pub(crate) kernel_args: Option<String>,
    pub(crate) payload: Vec<(PathBuf, PathBuf)>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) allowed: Vec<String>,
    pub(crate) limit: Duration,
    pub(crate) echo: bool,
    pub(crate) silicon: Option<Silicon>,
    pub(crate) has_systemd: bool,
}

impl Guest {
    /// A guest with 4 CPUs, 2 GiB, and two minutes to finish.
    #[must_use]
    pub fn new(cache: &Cache, images: &Images) -> Self {
        Self {
            cache: cache.clone(),
            images: images.clone(),
            emulator: Emulator::default(),
            cpus: 4,
            memory_mib: 2048,
            topology: None,
            cpu: "max".to_owned(),
            icount_shift: None,
            kernel_args: None,
            payload: Vec::new(),
            env: Vec::new(),
            allowed: Vec::new(),
            limit: Duration::from_secs(120),
            echo: false,
            silicon: None,
            has_systemd: false,
        }
    }

    /// What it runs in; QEMU if not given. The first guest in Bochs builds it,
    /// which takes two minutes.
    #[must_use]
    pub fn emulator(mut self, emulator: Emulator) -> Self {
        self.emulator = emulator;
        self
    }

    /// A machine with dim silicon: Bochs in which CPUs have clocks of their own, lowered by licence
    /// levels. Without a topology its CPUs are cores of one socket. The first such guest builds the
    /// emulator, which takes two minutes.
    #[must_use]
    pub fn silicon(mut self, silicon: Silicon) -> Self {
        self.emulator = Emulator::Bochs;
        self.silicon = Some(silicon);
        self
    }

    /// Boots the root's systemd, and runs the command as a service beside those of
    /// `multi-user.target`, instead of as the only process. The images must have it
    /// ([`crate::prepare_with_systemd`]), and the emulator must be QEMU.
    #[must_use]
    pub fn systemd(mut self, on: bool) -> Self {
        self.has_systemd = on;
        self
    }

    /// Number of logical CPUs. All of them share one host CPU.
    #[must_use]
    pub fn cpus(mut self, cpus: u32) -> Self {
        self.cpus = cpus;
        self
    }

    /// Memory in MiB.
    #[must_use]
    pub fn memory_mib(mut self, mib: u32) -> Self {
        self.memory_mib = mib;
        self
    }

    /// How the CPUs form sockets, cores and threads, as QEMU's `-smp` takes it:
    /// `sockets=1,cores=2,threads=2`. Without it every CPU is a socket.
    #[must_use]
    pub fn topology(mut self, topology: &str) -> Self {
        self.topology = (!topology.is_empty()).then(|| topology.to_owned());
        self
    }

    /// The CPU as QEMU's `-cpu` takes it; `max`, all that can be emulated, when
    /// it is not given. `max,vendor=GenuineIntel,family=6,model=85` calls
    /// itself a Skylake-SP. In Bochs the name of one of its models, and `max`
    /// is `corei7_skylake_x`; `sapphire_rapids` has AMX.
    #[must_use]
    pub fn cpu(mut self, model: &str) -> Self {
        model.clone_into(&mut self.cpu);
        self
    }

    /// Counts instructions: the time stamp counter in the guest advances by
    /// one for each instruction that any CPU executes, and by the nanoseconds
    /// of idle time while all are idle. Nearly repeatable, but slow: a guest
    /// second is 10^9 instructions, and a boot with 4 CPUs takes 25 s.
    #[must_use]
    pub fn icount(self, on: bool) -> Self {
        self.icount_shift(on.then_some(0))
    }

    /// As [`Guest::icount`], with 2^shift ticks for each instruction. With a
    /// shift of 2 the guest's clock runs faster than its work, so what waits
    /// for time is over sooner: a boot takes 9 s. The command finds the shift
    /// in the environment variable `TURBOLANE_ICOUNT_SHIFT`.
    #[must_use]
    pub fn icount_shift(mut self, shift: Option<u8>) -> Self {
        self.icount_shift = shift;
        self
    }

    /// Appends to the kernel command line; a later parameter wins.
    #[must_use]
    pub fn kernel_args(mut self, args: &str) -> Self {
        self.kernel_args = (!args.is_empty()).then(|| args.to_owned());
        self
    }

    /// Puts a file, or a folder with all in it, into the guest.
    #[must_use]
    pub fn payload(mut self, host: impl Into<PathBuf>, guest: impl Into<PathBuf>) -> Self {
        self.payload.push((host.into(), guest.into()));
        self
    }

    /// Sets an environment variable for the command.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Lines of the kernel log that contain `text` are no findings.
    #[must_use]
    pub fn allow_log(mut self, text: &str) -> Self {
        self.allowed.push(text.to_owned());
        self
    }

    /// Wall-clock time for boot, command and power-off together.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Copies the command's output to our own while it comes.
    #[must_use]
    pub fn echo(mut self, on: bool) -> Self {
        self.echo = on;
        self
    }

    /// The command as a shell script for `guest/init`.
    pub(crate) fn script(&self, command: &[&str]) -> String {
        let mut script = String::from(
            "cd /root\n\
             export HOME=/root LANG=C.UTF-8 TERM=dumb\n\
             export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin\n",
        );
        if let Some(shift) = self.icount_shift {
            script.push_str(&format!("export TURBOLANE_ICOUNT_SHIFT={shift}\n"));
        }
        for (name, value) in &self.env {
            script.push_str(&format!("export {name}={}\n", quoted(value)));
        }
        let words: Vec<String> = command.iter().map(|word| quoted(word)).collect();
        script.push_str(&format!("exec {}\n", words.join(" ")));
        script
    }
}

/// A word that the shell takes literally.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shell_reads_quoted_words_unchanged() {
        let nasty = "a 'b' \"c\" $HOME `id` \\ \n*";
        let out = std::process::Command::new("sh")
            .args(["-c", &format!("printf %s {}", quoted(nasty))])
            .output()
            .unwrap();
        assert_eq!(String::from_utf8(out.stdout).unwrap(), nasty);
    }
}
