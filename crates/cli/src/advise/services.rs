// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which running services map wide code: the files of their processes, scanned, the busiest service
//! of the highest level first.
//!
//! What every process maps says nothing about a service, so an object that more than half of the
//! looked-at processes map (the C library) is left out, unless there are few processes. Without
//! root only the user's own processes can be looked at; how many were refused is part of the
//! answer.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use hw::Live;
use hw::activity;
use hw::memory::{Mapping, Origin, open_mapped};
use report::advise::{LookedAt, Object, Service};
use report::scan::Processes;
use scan::{Options, Sort, scan_file};

use crate::running::{each_process, service_of};
use crate::scan::map;
use crate::sim::{in_parallel, input};

/// With fewer processes than this nothing counts as mapped by all.
const FEW_PROCESSES: usize = 8;

/// A file with a mapping by which it can be opened.
struct Mapped {
    path: String,
    pid: u32,
    mapping: Mapping,
}

#[derive(Default)]
struct Found {
    processes: u32,
    cpu_time_ns: u64,
    files: BTreeSet<String>,
}

/// Services with wide code, and what was looked at.
pub(super) fn services() -> (Vec<Service>, LookedAt) {
    let mut files: BTreeMap<String, Mapped> = BTreeMap::new();
    let mut users: HashMap<String, usize> = HashMap::new();
    let mut found: BTreeMap<String, Found> = BTreeMap::new();
    let seen = each_process(|pid, mappings| {
        let service = found.entry(service_of(pid)).or_default();
        service.processes += 1;
        service.cpu_time_ns += cpu_time_ns(pid);
        let mut own = BTreeSet::new();
        for mapping in mappings {
            let Origin::File { path, identity } = &mapping.origin else { continue };
            let (identity, path) = (identity.clone(), path.display().to_string());
            if own.insert(identity.clone()) {
                *users.entry(identity.clone()).or_default() += 1;
            }
            service.files.insert(identity.clone());
            files.entry(identity).or_insert(Mapped { path, pid, mapping });
        }
    });
    let Processes { looked_at: processes, refused } = seen.unwrap_or_default();
    let looked_at = LookedAt { processes, refused, files: files.len() as u32 };
    let nr_processes = processes as usize;
    let is_everywhere = |identity: &String| {
        nr_processes >= FEW_PROCESSES
            && users.get(identity).is_some_and(|users| users * 2 > nr_processes)
    };
    let files: Vec<(String, Mapped)> =
        files.into_iter().filter(|(identity, _)| !is_everywhere(identity)).collect();
    let scanned = in_parallel(input::jobs(), files.len(), |index| object(&files[index].1));
    let identities = files.into_iter().map(|(identity, _)| identity);
    let objects: HashMap<String, Object> = identities
        .zip(scanned)
        .filter_map(|(identity, object)| Some((identity, object?)))
        .collect();
    (ranked(found, &objects), looked_at)
}

fn cpu_time_ns(pid: u32) -> u64 {
    let tasks = activity::tasks(&Live, &[pid]).unwrap_or_default();
    let ticks: u64 = tasks.iter().map(|task| task.run_ticks).sum();
    ticks * 1_000_000_000 / activity::ticks_per_second()
}

/// What a file can do to the clock; nothing if it cannot be scanned, or does nothing.
fn object(mapped: &Mapped) -> Option<Object> {
    let bytes = open_mapped(mapped.pid, &mapped.mapping).and_then(|file| map(&file)).ok()?;
    let options = Options { level: 1, top: None, sort: Sort::Level };
    let scanned = scan_file(&mapped.path, &bytes, &options).ok()?;
    let levels = scanned.listed.iter().map(|function| function.sustained_level);
    let sustained_level = levels.clone().max().filter(|level| *level > 0)?;
    let functions = levels.filter(|level| *level == sustained_level).count() as u64;
    Some(Object { file: mapped.path.clone(), sustained_level, functions })
}

/// The highest level first, among equals the busiest.
fn ranked(found: BTreeMap<String, Found>, objects: &HashMap<String, Object>) -> Vec<Service> {
    let mut services: Vec<Service> = found
        .into_iter()
        .map(|(name, found)| {
            let mut of: Vec<Object> =
                found.files.iter().filter_map(|identity| objects.get(identity).cloned()).collect();
            of.sort_by(|a, b| {
                let key = |o: &Object| std::cmp::Reverse((o.sustained_level, o.functions));
                (key(a), &a.file).cmp(&(key(b), &b.file))
            });
            Service {
                name,
                processes: found.processes,
                cpu_time_ns: found.cpu_time_ns,
                objects: of,
            }
        })
        .filter(|service| !service.objects.is_empty())
        .collect();
    services.sort_by_key(|service| {
        std::cmp::Reverse((service.objects[0].sustained_level, service.cpu_time_ns))
    });
    services
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A higher level goes first, then the busier service; services without wide code are left out.
    #[test]
    fn services_are_ranked() {
        let object = |file: &str, sustained_level| {
            (file.to_owned(), Object { file: file.into(), sustained_level, functions: 1 })
        };
        let objects = HashMap::from([object("avx2", 1), object("avx512", 2)]);
        let service = |name: &str, cpu_time_ns, files: &[&str]| {
            let files = files.iter().map(|file| (*file).to_owned()).collect();
            (name.to_owned(), Found { processes: 1, cpu_time_ns, files })
        };
        let found = BTreeMap::from([
            service("busy", 9, &["avx2"]),
            service("idle", 1, &["avx2"]),
            service("wide", 2, &["avx2", "avx512"]),
            service("plain", 99, &["scalar"]),
        ]);
        let ranked = ranked(found, &objects);
        let names: Vec<&str> = ranked.iter().map(|service| service.name.as_str()).collect();
        assert_eq!(names, ["wide", "busy", "idle"]);
        assert_eq!(ranked[0].objects[0].file, "avx512");
    }
}
