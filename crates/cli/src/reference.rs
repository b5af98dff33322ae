// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pages of docs/ that list what is defined elsewhere: options of all commands, settings and
//! statistics. `UPDATE=1` writes them.
//!
//! The manual pages have the full text of each option. The list of options is for a reader who
//! looks for an option and does not know whose it is: it has the first sentence of each.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use clap::{Arg, ArgAction, Command, CommandFactory};
use report::lane::{LaneStats, LaneStatus};
use report::metrics::{Format, Scrape};
use report::stats::{Kind, Statistics};
use sched::config::Config;
use sched::settings::SETTINGS;

use crate::Cli;

const LICENSE: &str = "<!-- SPDX-License-Identifier: MIT OR Apache-2.0 -->\n";
const HOW: &str = "<!-- Generated: UPDATE=1 cargo test -p turbolane-cli reference -->\n";

/// The options of all commands.
fn options() -> String {
    let mut page = format!(
        "{LICENSE}{HOW}# Options of all commands\n\n\
         In short; `turbolane COMMAND --help` and the manual page `turbolane-COMMAND(1)` have the full \
         text and examples.\n\
         What commands print, and their exit codes: [Commands, output and exit codes](commands.md).\n"
    );
    let mut program = Cli::command();
    program.build();
    add_commands(&program, &mut page);
    page
}

fn add_commands(command: &Command, page: &mut String) {
    for command in command.get_subcommands().filter(|command| !command.is_hide_set()) {
        let name = command.get_bin_name().expect("the program was built");
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        _ = write!(page, "\n## {name}\n\n{}.\n", escaped(&about));
        let arguments: Vec<&Arg> = command
            .get_arguments()
            .filter(|argument| !argument.is_hide_set() && argument.get_id() != "help")
            .collect();
        // Those without a heading come first: below another list they would seem to belong to it.
        let mut headings: Vec<Option<&str>> = vec![None];
        for argument in &arguments {
            if !headings.contains(&argument.get_help_heading()) {
                headings.push(argument.get_help_heading());
            }
        }
        for heading in headings {
            match heading {
                Some(heading) => _ = write!(page, "\n{heading}:\n\n"),
                None if arguments.iter().all(|argument| argument.get_help_heading().is_some()) => {}
                None => *page += "\n",
            }
            let here = arguments.iter().filter(|argument| argument.get_help_heading() == heading);
            here.for_each(|argument| *page += &line(argument));
        }
        add_commands(command, page);
    }
}

/// One option: how it is written, its values and default, and what it does.
fn line(argument: &Arg) -> String {
    let values: Vec<&str> =
        argument.get_value_names().into_iter().flatten().map(|name| name.as_str()).collect();
    let values =
        if argument.get_action().takes_values() { values.join(" ") } else { String::new() };
    let is_many = matches!(argument.get_action(), ArgAction::Append) && !values.ends_with("...");
    let many = if is_many { "..." } else { "" };
    let long = argument.get_long().map(|long| format!("--{long}"));
    let short = argument.get_short().map(|short| format!("-{short}"));
    let flags: Vec<String> = short.into_iter().chain(long).collect();
    let written = match flags.join(", ") {
        flags if flags.is_empty() => format!("{values}{many}"),
        flags if values.is_empty() => flags,
        flags => format!("{flags} {values}{many}"),
    };
    let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
    let mut line = format!("- `{written}`: {}", escaped(&help));
    let possible = argument.get_possible_values();
    if !possible.is_empty() && !argument.is_hide_possible_values_set() {
        let names: Vec<String> =
            possible.iter().map(|value| format!("`{}`", value.get_name())).collect();
        _ = write!(line, "; one of {}", names.join(", "));
    }
    let defaults: Vec<String> = argument
        .get_default_values()
        .iter()
        .filter(|value| !value.is_empty())
        .map(|value| format!("`{}`", value.display()))
        .collect();
    // A switch is off.
    if !values.is_empty() && !defaults.is_empty() && !argument.is_hide_default_value_set() {
        _ = write!(line, "; default {}", defaults.join(", "));
    }
    line + "\n"
}

/// The settings of a run, and its statistics.
fn settings() -> String {
    let mut page = format!(
        "{LICENSE}{HOW}# Settings and statistics\n\n\
         ## Settings\n\n\
         A setting is a flag of `turbolane run` and `turbolane enable`, a key of the settings file \
         (`--config`, `/etc/turbolane.toml`), and, if\nit is live, one that `turbolane ctl set` \
         changes while the scheduler runs. The file also has `mark`, `marks`, \
         `ignore-cgroup-limits`\nand `metrics`, which are described in turbolane-run(1).\n\n\
         | setting | default | live | meaning |\n|---|---|---|---|\n"
    );
    let config = Config::default();
    for setting in SETTINGS {
        let (key, value) = (setting.key, setting.get(&config));
        let live = if setting.live { "yes" } else { "no" };
        let value = if value.is_empty() { "none".into() } else { format!("`{value}`") };
        _ = writeln!(page, "| `{key}` | {value} | {live} | {} |", cell(setting.meaning));
    }
    page += "\n## Statistics\n\n\
        What `turbolane stats` and `ctl status` print; `--metrics` exports each as the metric of \
        Prometheus that is named here, in base\nunits. A counter grows from the start of the run, a \
        gauge is the latest value. `null` (in text `-`): not known in this mode or on\nthis \
        kernel.\n\n\
        | statistic | kind | metric | meaning |\n|---|---|---|---|\n";
    for about in LaneStats::ABOUT {
        let kind = match about.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        let metric = metric(about.key);
        _ = writeln!(page, "| `{}` | {kind} | `{metric}` | {} |", about.key, cell(about.about));
    }
    page
}

/// The name of a statistic's metric: what is exported if nothing else is known.
fn metric(key: &str) -> String {
    let stats = serde_json::json!({ key: 1 });
    let scrape = Scrape {
        version: String::new(),
        status: LaneStatus {
            pid: 1,
            mode: String::new(),
            uptime_ns: 0,
            wide_cpus: String::new(),
            scalar_cpus: String::new(),
            standby: None,
            pause_left_ns: None,
            marks: Vec::new(),
            lost_marks: Vec::new(),
            scope: Vec::new(),
            cpus: Vec::new(),
        },
        stats: serde_json::from_value(stats).expect("it is a statistic"),
    };
    let text = scrape.text(Format::Prometheus);
    let mut names = text.lines().filter(|line| !line.starts_with(['#', ' ']));
    let line = names.rfind(|line| !line.starts_with("turbolane_run_info")).expect("it is exported");
    line.split(' ').next().unwrap_or_default().to_owned()
}

/// As Markdown shows it as it is.
fn escaped(text: &str) -> String {
    let one_line = text.replace('\n', " ");
    one_line.replace('<', "\\<").replace('*', "\\*").replace("](", "]\\(")
}

fn cell(text: &str) -> String {
    escaped(text).replace('|', "\\|")
}

fn is_current(page: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page);
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, text).unwrap();
    }
    assert!(
        fs::read_to_string(&path).unwrap_or_default() == text,
        "docs/{page} is stale. Run: UPDATE=1 cargo test -p turbolane-cli reference"
    );
}

#[test]
fn pages_are_current() {
    is_current("options.md", &options());
    is_current("settings.md", &settings());
}

/// An option has its values and its default, and Markdown does not take its text for markup.
#[test]
fn an_option_is_one_line() {
    let argument = Arg::new("level").long("level").short('l').value_name("N").default_value("1");
    let argument = argument.value_parser(["0", "1"]).help("least <level> [of *all*](x)");
    let built = Command::new("x").arg(argument);
    let shown = line(built.get_arguments().next().unwrap());
    let expected =
        "- `-l, --level N`: least \\<level> [of \\*all\\*]\\(x); one of `0`, `1`; default `1`\n";
    assert_eq!(shown, expected);
    let flag = Command::new("x").arg(Arg::new("json").long("json").action(ArgAction::SetTrue));
    assert_eq!(line(flag.get_arguments().next().unwrap()), "- `--json`: \n");
}

/// The exported name has the base unit.
#[test]
fn statistics_have_their_metrics() {
    assert_eq!(metric("migrations"), "turbolane_migrations_total");
    assert_eq!(metric("wide_cpus"), "turbolane_wide_cpus");
}
