// SPDX-License-Identifier: MIT OR Apache-2.0
// What was sampled, and the tables of functions and victims.

const busy = (samples) => percent(samples / Math.max(1, report.busy));

/** A table of columns [title, is text, cell of a row], or a note where there are no rows. */
function table(place, columns, rows, none) {
  const cell = (name, [, isText], content) => make(name, { class: isText ? "text" : null }, content);
  const head = make("tr", {}, ...columns.map((column) => cell("th", column, column[0])));
  const line = (row) => make("tr", {}, ...columns.map((column) => cell("td", column, column[2](row))));
  const content = rows.length === 0 ? make("p", { class: "note" }, none)
    : make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows.map(line)));
  document.getElementById(place).replaceChildren(content);
}

document.getElementById("about").textContent =
  `${counted(report.samples)} samples in ${time(report.time_ns)} on ${counted(report.cpus)} CPUs, one per ` +
  `${time(report.period_ns)} and CPU; ${counted(report.lost)} lost` +
  (report.partial ? `. Partial: ${report.partial}` : "");
const inputs = [
  ["Busy", counted(report.busy)], ["Kernel", busy(report.kernel)], ["Unknown code", busy(report.unknown)],
  ...report.levels.map((level) => [`Level ${level.license_level}`, busy(level.samples)]),
];
document.getElementById("input").append(...inputs.map(([name, value]) =>
  make("div", {}, make("dt", {}, name), make("dd", {}, value))));
table("functions", [
  ["Function", true, (row) => row.function],
  ["Process", true, (row) => row.process],
  ["Level", false, (row) => String(row.license_level)],
  ["Lasting", false, (row) => String(row.sustained_level)],
  ["Of busy time", false, (row) => busy(row.samples)],
  ["Samples", false, (row) => counted(row.samples)],
  ["File", true, (row) => row.file],
], report.offenders, `No sample in a function of level ${report.least_level} or above.`);
table("victims", [
  ["Victim", true, (row) => row.process],
  ["Of busy time", false, (row) => busy(row.samples)],
  ["Of its own", false, (row) => percent(row.samples / Math.max(1, row.of))],
], report.victims, `No other code was seen within ${time(report.window_ns)} after it on the same cores.`);
document.getElementById("method").append(
  make("p", {}, "Callers are found by frame pointers, which many libraries omit. Functions are named where they have wide code, otherwise their file is."),
  ...(report.unread.length === 0 ? [] : [make("details", {}, make("summary", {}, "Not looked at"),
    make("ul", {}, ...report.unread.map((what) => make("li", {}, what))))]));
