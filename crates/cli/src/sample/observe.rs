// SPDX-License-Identifier: MIT OR Apache-2.0
//! From samples to places in files, while the processes live.
//!
//! A process's mappings are read when it is seen first, and again (ten times a second at most) when
//! an address is in none of them: it has loaded a library since. A file is opened by the mapping
//! itself as soon as a sample is in it, so that it is the one that runs, whatever has become of its
//! name; it is scanned when sampling is over.
//!
//! Limits: of a process that ends before it is looked at (samples are read twenty times a second)
//! only the number is known.

use std::collections::HashMap;
use std::fs::File;
use std::time::{Duration, Instant};

use hw::memory::{Mapping, Origin, executable_mappings, open_mapped};
use hw::sampling::Sample;
use hw::task;

use super::attribute::{Place, Seen, Stacks};

/// Between two looks at the mappings of a process.
const AGAIN: Duration = Duration::from_millis(100);

/// Which processes are asked about, by number; asked once for each, when it is seen first.
pub(crate) type Asked = Box<dyn Fn(u32) -> bool>;

/// A file with samples in it.
pub(super) struct Sampled {
    pub path: String,
    pub file: std::io::Result<File>,
}

struct Process {
    name: usize,
    is_asked: bool,
    mappings: Vec<Mapping>,
    looked: Instant,
}

/// All that was seen.
pub(super) struct Observer {
    asked: Asked,
    pub seen: Vec<Seen>,
    pub names: Vec<String>,
    pub files: Vec<Sampled>,
    pub unread: Vec<String>,
    /// Call chains, outermost caller first, each with its process's name.
    pub stacks: Stacks,
    processes: HashMap<u32, Process>,
    by_name: HashMap<String, usize>,
    by_identity: HashMap<String, usize>,
}

impl Observer {
    /// For these processes.
    pub(super) fn of(asked: Asked) -> Self {
        Observer {
            asked,
            seen: Vec::new(),
            names: Vec::new(),
            files: Vec::new(),
            unread: Vec::new(),
            stacks: Stacks::new(),
            processes: HashMap::new(),
            by_name: HashMap::new(),
            by_identity: HashMap::new(),
        }
    }

    pub(super) fn see(&mut self, sample: &Sample) {
        let (place, (process, is_asked)) = match sample.pid {
            0 => (Place::Idle, (self.name("idle"), false)),
            pid => {
                let process = self.process(pid);
                let place = match sample.is_user {
                    true => self.place(pid, sample.address),
                    false => Place::Kernel,
                };
                (place, process)
            }
        };
        let &Sample { cpu, time_ns, tid, .. } = sample;
        self.seen.push(Seen { cpu, time_ns, thread: tid, process, place, is_asked });
        if is_asked {
            // a return address is after its call, which may be the function's last instruction
            let callers = sample.callers.iter().rev().map(|address| address.wrapping_sub(1));
            let mut stack: Vec<Place> =
                callers.map(|address| self.place(sample.pid, address)).collect();
            stack.push(place);
            *self.stacks.entry((process, stack)).or_default() += 1;
        }
    }

    fn name(&mut self, name: &str) -> usize {
        if let Some(&known) = self.by_name.get(name) {
            return known;
        }
        self.names.push(name.to_owned());
        self.by_name.insert(name.to_owned(), self.names.len() - 1);
        self.names.len() - 1
    }

    /// The index of the process's name, and whether it is asked about; the process is looked at if
    /// it is new.
    fn process(&mut self, pid: u32) -> (usize, bool) {
        if let Some(known) = self.processes.get(&pid) {
            return (known.name, known.is_asked);
        }
        let is_asked = (self.asked)(pid);
        let text = task::name(pid).unwrap_or_else(|_| format!("process {pid}"));
        let name = self.name(&text);
        let mappings = match executable_mappings(pid) {
            Ok(mappings) => mappings,
            Err(error) => {
                // kernel threads have none, and what has ended is no news
                let is_news = task::is_kernel_thread(pid).is_ok_and(|is| !is);
                if is_news && error.kind() != std::io::ErrorKind::NotFound {
                    self.unread.push(format!("process {pid} ({text}): {error}"));
                }
                Vec::new()
            }
        };
        let looked = Instant::now();
        self.processes.insert(pid, Process { name, is_asked, mappings, looked });
        (name, is_asked)
    }

    fn place(&mut self, pid: u32, address: u64) -> Place {
        let Some(process) = self.processes.get_mut(&pid) else { return Place::Unknown };
        let is_in = |mapping: &&Mapping| (mapping.start..mapping.end).contains(&address);
        if !process.mappings.iter().any(|mapping| is_in(&mapping))
            && process.looked.elapsed() > AGAIN
        {
            process.looked = Instant::now();
            process.mappings = executable_mappings(pid).unwrap_or_default();
        }
        let Some(mapping) = process.mappings.iter().find(is_in) else { return Place::Unknown };
        let (path, identity) = match &mapping.origin {
            Origin::File { path, identity } => (path, identity),
            // the vdso: the kernel's code, whoever's time it is
            Origin::Kernel => return Place::Kernel,
            Origin::Written => return Place::Unknown,
        };
        let file = match self.by_identity.get(identity) {
            Some(&known) => known,
            None => {
                let path = path.display().to_string();
                self.files.push(Sampled { path, file: open_mapped(pid, mapping) });
                self.by_identity.insert(identity.clone(), self.files.len() - 1);
                self.files.len() - 1
            }
        };
        Place::File(file, address - mapping.start + mapping.offset)
    }
}
