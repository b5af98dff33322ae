// SPDX-License-Identifier: MIT OR Apache-2.0
//! The guest's part of `./x demo`: nginx serves a compressed file over TLS with
//! ChaCha20-Poly1305 (the papers' web server), and OpenSSL's cipher functions are marked as
//! wide. The load runs once without and once with `turbolane run`.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::guest::wait_for;
use crate::lane::{Lane, stat, stats, turbolane};

const DIR: &str = "/tmp/demo";
const PORT: u16 = 8443;
const SECONDS: u32 = 8;
/// What nginx calls for every TLS record; exported, so that stripped libraries have them too.
const MARKED: [&str; 2] = ["EVP_CipherUpdate", "EVP_EncryptUpdate"];
const LIBCRYPTO: &str = "/usr/lib/x86_64-linux-gnu/libcrypto.so.3";

/// A running nginx; stopped when dropped.
struct Nginx(Child);

impl Nginx {
    fn start() -> Result<Self> {
        fs::create_dir_all(format!("{DIR}/www"))?;
        fs::write(format!("{DIR}/nginx.conf"), config())?;
        let text: String =
            (0..2500).map(|i| format!("line {i}: {:x}\n", i * 2_654_435_761u64)).collect();
        fs::write(format!("{DIR}/www/file.txt"), text)?;
        let key =
            ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-keyout", "key.pem"];
        run(
            "openssl",
            &[&["req", "-x509", "-nodes", "-subj", "/CN=demo", "-out", "cert.pem"], &key[..]]
                .concat(),
        )?;
        let nginx = Command::new("nginx")
            .args(["-p", DIR, "-c", "nginx.conf"])
            .stdin(Stdio::null())
            .spawn()
            .context("nginx cannot be started")?;
        let nginx = Nginx(nginx);
        wait_for("nginx does not answer", Duration::from_secs(20), || fetch().is_ok())?;
        Ok(nginx)
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // SAFETY: our own child; its workers end with it.
        unsafe { libc::kill(self.0.id() as i32, libc::SIGTERM) };
        let _ = self.0.wait();
    }
}

fn config() -> String {
    format!(
        "daemon off; worker_processes 4; pid nginx.pid; error_log error.log;\n\
         events {{ worker_connections 64; }}\n\
         http {{\n  access_log off; types {{ text/plain txt; }}\n\
         gzip on; gzip_types text/plain; gzip_comp_level 6;\n\
         client_body_temp_path tmp; proxy_temp_path tmp; fastcgi_temp_path tmp; uwsgi_temp_path tmp; scgi_temp_path tmp;\n\
         server {{ listen 127.0.0.1:{PORT} ssl; root www;\n\
         ssl_certificate cert.pem; ssl_certificate_key key.pem;\n\
         ssl_protocols TLSv1.3; ssl_conf_command Ciphersuites TLS_CHACHA20_POLY1305_SHA256; }}\n}}\n"
    )
}

fn url() -> String {
    format!("https://127.0.0.1:{PORT}/file.txt")
}

fn run(program: &str, args: &[&str]) -> Result<String> {
    let output = Command::new(program).args(args).current_dir(DIR).stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("{program} cannot be started"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        output.status.success(),
        "{program}: {text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(text)
}

fn fetch() -> Result<String> {
    run(
        "curl",
        &[
            "-skf",
            "--compressed",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code} %{ssl_verify_result}",
            &url(),
        ],
    )
}

/// Load nginx; requests served.
fn load() -> Result<u64> {
    let duration = format!("{SECONDS}s");
    let text = run("wrk", &["-t1", "-c8", "-d", &duration, "-H", "Accept-Encoding: gzip", &url()])?;
    let line =
        text.lines().find(|line| line.contains("requests in")).context("wrk tells no requests")?;
    ensure!(!text.contains("Non-2xx"), "nginx answered with errors: {text}");
    line.split_whitespace()
        .next()
        .and_then(|n| n.parse().ok())
        .with_context(|| format!("not understood: {line}"))
}

fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "-".into() } else { format!("{:.2} %", 100.0 * part as f64 / whole as f64) }
}

fn print_table(without: u64, with: u64, counted: &Value) -> Result<()> {
    let get = |key| stat(counted, key);
    let (wide_ns, degraded_ns) = (get("wide_run_ns")?, get("degraded_ns")?);
    println!("{:<44} {:>12} {:>12}", "", "without", "with");
    let row =
        |what: &str, without: &str, with: &str| println!("{what:<44} {without:>12} {with:>12}");
    row(&format!("requests served in {SECONDS} s"), &without.to_string(), &with.to_string());
    // The way from the mark to the wide CPU is kernel code; here, emulated, it is long.
    let marked_ns = wide_ns - get("leaving_ns")?.min(wide_ns);
    let right_ns = marked_ns - degraded_ns.min(marked_ns);
    row("share of marked time on wide CPUs", "unknown", &percent(right_ns, marked_ns));
    row("share of wide time spent on the way there", "0", &percent(wide_ns - marked_ns, wide_ns));
    let wrong = format!("{} of {}", get("wide_on_scalar_ticks")?, get("ticks")?);
    row("timer ticks that saw wide on scalar CPUs", "unknown", &wrong);
    row("calls of and returns from marked functions", "0", &get("mark_events")?.to_string());
    row("migrations", "unknown", &get("migrations")?.to_string());
    row("type changes", "0", &get("type_changes")?.to_string());
    Ok(())
}

/// The guest's part of the demo.
pub fn run_demo() -> Result<()> {
    crate::guest::calibrate();
    let nginx = Nginx::start()?;
    println!(
        "nginx serves a gzipped file over TLS 1.3 with ChaCha20-Poly1305; wrk asks for it for {SECONDS} s"
    );
    let without = load()?;
    let marks: Vec<String> =
        MARKED.iter().map(|function| format!("{LIBCRYPTO}:{function}@2")).collect();
    let mut args = vec!["--mode", "scx", "--wide-cpus", "cpu:3"];
    for mark in &marks {
        args.extend(["--mark", mark]);
    }
    println!("$ turbolane run {} &", args.join(" "));
    let lane = Lane::start(&args)?;
    let with = load()?;
    let (counted, status) = (stats()?, turbolane(&["ctl", "status"])?);
    lane.stop()?;
    drop(nginx);
    ensure!(stat(&counted, "mark_events")? > 0, "nginx never called {MARKED:?}: {status}");
    println!();
    print_table(without, with, &counted)?;
    println!("\n$ turbolane ctl status\n{status}");
    println!(
        "This machine is emulated: its CPUs have no licence levels, all of them share one core of the host,\n\
         and a probe or migration costs many times what it costs on hardware. So the table shows that real\n\
         programs' wide code is kept on its CPU and what is counted. It does not show any gain in speed; for\n\
         that a machine whose frequency falls is needed."
    );
    Ok(())
}
