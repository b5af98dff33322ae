// SPDX-License-Identifier: MIT OR Apache-2.0
//! The papers' web server (SFMA 4), as one point of an experiment: nginx compresses a file and
//! sends it over TLS 1.3 with ChaCha20-Poly1305, and wrk requests it.
//!
//! ```text
//! vmtests nginx CODE REQUESTS[+WARM_UP] [ARGUMENT OF turbolane run...]
//! vmtests nginx CODE REQUESTS[+WARM_UP] record [ARGUMENT OF turbolane record...]
//! ```
//!
//! CODE is the form of OpenSSL's ciphers (`openssl.rs`). With arguments the load runs under
//! `turbolane run`, or under the kernel's scheduler while `turbolane record` records the server.
//! Workers share all CPUs but CPU 0, which wrk and turbolane have: the lane's wide
//! CPUs are the last ones. What was measured goes to `point.json`.
//!
//! The time is that from one response to another, taken by wrk's script: connecting, the first
//! requests and wrk's own end are no part of it. A machine that has marks (port 0xee) gets one at
//! either end.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::guest::{set_affinity, wait_for};
use crate::openssl::Code;
use crate::point::{Done, Recording, Running, Scheduler, load_cpus, with_warm_up};

const DIR: &str = "/tmp/nginx";
const PORT: u16 = 8443;
/// http://127.0.0.1:PORT/status has the number of requests so far, a figure for `--goal`.
const STATUS_PORT: u16 = 8080;
/// For each CPU of the server; more than one, because a worker that waits for a wide CPU leaves its
/// CPU to another.
const WORKERS_PER_CPU: usize = 3;
const CONNECTIONS_PER_WORKER: usize = 4;
/// Requests before the first mark if nothing was said: by then the trap module has seen nginx at
/// work.
const WARM_UP_PER_CONNECTION: usize = 4;
/// For all requests together, in the guest's time.
const LIMIT: Duration = Duration::from_secs(60);

/// Asks until so many responses came, then says how long it took.
const SCRIPT: &str = r#"
local ffi = require("ffi")
ffi.cdef[[
typedef struct { long s; long ns; } nginx_time;
int clock_gettime(int clock, nginx_time *time);
int ioperm(unsigned long from, unsigned long count, int on);
void *mmap(void *place, size_t bytes, int protection, int flags, int file, long offset);
]]
local function now()
  local time = ffi.new("nginx_time")
  ffi.C.clock_gettime(1, time)
  return tonumber(time.s) + tonumber(time.ns) / 1e9
end
-- Lua has no OUT instruction. This one: mov eax, edi; out 0xee, al; ret
local code = ffi.C.mmap(nil, 4096, 7, 0x22, -1, 0)
ffi.copy(code, "\x89\xf8\xe6\xee\xc3", 5)
local mark = function() end
if ffi.C.ioperm(0xee, 1, 1) == 0 then mark = ffi.cast("void (*)(int)", code) end
local warm, wanted = WARM_UP, REQUESTS
local count, bad, first = 0, 0, 0
function response(status)
  count = count + 1
  if status ~= 200 then bad = bad + 1 end
  if count == warm then
    mark(1)
    first = now()
  elseif count == warm + wanted then
    local seconds = now() - first
    mark(2)
    local out = io.open("result.new", "w")
    out:write(string.format('{"requests":%d,"bad":%d,"begin_s":%.9f,"seconds":%.9f}', wanted, bad, first, seconds))
    out:close()
    os.rename("result.new", "result.json")
    wrk.thread:stop()
  end
end
"#;

/// What the script writes.
#[derive(Deserialize)]
struct Measured {
    requests: u32,
    bad: u32,
    /// By CLOCK_MONOTONIC.
    begin_s: f64,
    seconds: f64,
}

/// One point: see the head of this file.
pub fn point(code: &str, requests: &str, run: &[&str]) -> Result<()> {
    let (requests, warm_up) = with_warm_up(requests).context("REQUESTS[+WARM_UP]")?;
    let code = Code::parse(code)?;
    let cpus = load_cpus()?;
    let workers = cpus.len() * WORKERS_PER_CPU;
    set_affinity(0, &[0])?;
    let nginx = serve(&code, cpus, workers)?;
    let (run, recorded) = match run {
        ["record", options @ ..] => (&[][..], Some(options)),
        run => (run, None),
    };
    let scheduler = Scheduler::start(run)?;
    let recording = recorded.map(|options| Recording::start(nginx.pid(), options)).transpose()?;
    let connections = workers * CONNECTIONS_PER_WORKER;
    let warm_up = warm_up.unwrap_or(connections * WARM_UP_PER_CONNECTION);
    let measured = load(requests, warm_up, connections)?;
    ensure!(measured.bad == 0, "{} responses were errors", measured.bad);
    if let Some(recording) = recording {
        recording.end(measured.begin_s, measured.seconds)?;
    }
    let done = Done { load: "nginx", done: f64::from(measured.requests), cpu_s: None };
    scheduler.end(&[done], measured.seconds)?;
    drop(nginx);
    Ok(())
}

/// nginx on these CPUs, with this form of the ciphers.
fn serve(code: &Code, cpus: Vec<usize>, workers: usize) -> Result<Running> {
    fs::create_dir_all(format!("{DIR}/www"))?;
    fs::write(format!("{DIR}/nginx.conf"), config(workers))?;
    let text: String =
        (0..1350).map(|i| format!("line {i}: {:x}\n", i * 2_654_435_761u64)).collect();
    fs::write(format!("{DIR}/www/file.txt"), text)?;
    let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-keyout", "key.pem"];
    let certificate = ["req", "-x509", "-nodes", "-subj", "/CN=nginx", "-out", "cert.pem"];
    run("openssl", &[&certificate[..], &key].concat())?;
    let mut nginx = Command::new("nginx");
    nginx.args(["-p", DIR, "-c", "nginx.conf"]).envs(code.environment()).stdin(Stdio::null());
    // SAFETY: one system call between fork and exec, on memory that this process had before.
    unsafe { nginx.pre_exec(move || set_affinity(0, &cpus).map_err(std::io::Error::other)) };
    let nginx = Running::spawn(&mut nginx)?;
    wait_for("nginx does not answer", Duration::from_secs(20), || {
        run("curl", &["-skf", "-o", "/dev/null", &url()]).is_ok()
    })?;
    Ok(nginx)
}

fn config(workers: usize) -> String {
    format!(
        "daemon off; worker_processes {workers}; pid nginx.pid; error_log error.log;\n\
         events {{ worker_connections 64; }}\n\
         http {{\n  access_log off; types {{ text/plain txt; }} keepalive_requests 100000;\n\
         gzip on; gzip_types text/plain; gzip_comp_level 1;\n\
         client_body_temp_path tmp; proxy_temp_path tmp; fastcgi_temp_path tmp; uwsgi_temp_path tmp; scgi_temp_path tmp;\n\
         server {{ listen 127.0.0.1:{PORT} ssl reuseport; root www;\n\
         ssl_certificate cert.pem; ssl_certificate_key key.pem;\n\
         ssl_protocols TLSv1.3; ssl_conf_command Ciphersuites TLS_CHACHA20_POLY1305_SHA256; }}\n\
         server {{ listen 127.0.0.1:{STATUS_PORT}; location = /status {{ stub_status; }} }}\n}}\n"
    )
}

fn url() -> String {
    format!("https://127.0.0.1:{PORT}/file.txt")
}

fn run(program: &str, args: &[&str]) -> Result<()> {
    let output = Command::new(program).args(args).current_dir(DIR).stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("{program} cannot be started"))?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program}: {complaint}");
    Ok(())
}

/// Loads the server by so many connections, with so many requests after the first ones.
fn load(requests: usize, warm_up: usize, connections: usize) -> Result<Measured> {
    let script =
        SCRIPT.replace("WARM_UP", &warm_up.to_string()).replace("REQUESTS", &requests.to_string());
    fs::write(format!("{DIR}/count.lua"), script)?;
    let limit = format!("{}s", LIMIT.as_secs());
    let connections = format!("-c{connections}");
    let mut wrk = Command::new("wrk");
    wrk.args(["-t1", &connections, "-d", &limit, "-s", "count.lua"])
        .args(["-H", "Accept-Encoding: gzip", &url()])
        .envs(Code::none().environment())
        .current_dir(DIR)
        .stdin(Stdio::null())
        .stdout(fs::File::create(format!("{DIR}/wrk.log"))?)
        .stderr(fs::File::create(format!("{DIR}/wrk.err"))?);
    // It would sleep to the end of its time.
    let _wrk = Running::spawn(&mut wrk)?;
    let result = format!("{DIR}/result.json");
    let done = wait_for("the requests take too long", LIMIT, || Path::new(&result).exists());
    done.with_context(|| {
        let read = |name: &str| fs::read_to_string(format!("{DIR}/{name}")).unwrap_or_default();
        format!("wrk: {}{}", read("wrk.log"), read("wrk.err"))
    })?;
    serde_json::from_str(&fs::read_to_string(&result)?).context("what wrk's script wrote")
}
